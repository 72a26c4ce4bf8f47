"""Iterators over a tf.data.Dataset: how they are made, and the wait of loops in Python.

`for x, y in dataset` and `iterator.get_next()` run in Python and are timed as they are. Keras's fit
takes its batches inside a graph, where nothing of Python can look: `training` tells those waits.
"""

import sys
from _thread import get_ident
from time import monotonic_ns
from typing import Any

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.tensorflow import seam
from fuelline.record.hooks.tensorflow.batches import count_samples
from fuelline.record.hooks.tensorflow.sources import Datasets, list_threads
from fuelline.schema.wire import Flag, Kind, Phase

__all__ = ["install"]

_WAIT_KIND, _START_KIND = int(Kind.WAIT), int(Kind.SOURCE_START)
_TRAINING, _END, _ERROR = int(Flag.TRAINING), int(Flag.END), int(Flag.ERROR)
_WAIT, _COMPUTE, _OUTSIDE = int(Phase.WAIT), int(Phase.COMPUTE), int(Phase.OUTSIDE)
_STARTING = int(Phase.SOURCE_START)
_ENDINGS = ("StopIteration", "OutOfRangeError")
"""What `next()` and `get_next()` raise at the end of a dataset."""


def install(guest: Guest, patches: Patches, sources: Datasets) -> list[Hook]:
    """Watch all iterators of the process."""
    owner = sys.modules[seam.ITERATORS].OwnedIterator
    build, take = IteratorStart(guest, sources), TakeBatch(guest, sources)
    patches.replace(owner, "_create_iterator", build.wrap(owner._create_iterator))  # noqa: SLF001
    patches.replace(owner, "__next__", take.wrap(owner.__next__))
    patches.replace(owner, "get_next", take.wrap(owner.get_next))
    return [build, take]


def install_several(guest: Guest, patches: Patches, sources: Datasets) -> list[Hook]:
    """Watch iterators that serve several devices: theirs are the threads that prepare batches."""
    owner = sys.modules[seam.MULTI_DEVICE].OwnedMultiDeviceIterator
    build = SeveralStart(guest, sources)
    patches.replace(owner, "__init__", build.wrap(owner.__init__))
    return [build]


class IteratorStart(Hook):
    """`iter(dataset)`: tf.data builds the pipeline and starts the threads that work in it."""

    name = "iterator"
    forbids = "telling datasets apart, and knowing their threads"

    def __init__(self, guest: Guest, sources: Datasets) -> None:
        super().__init__(guest)
        self._sources = sources

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note who is there before."""
        threads = list_threads()
        return (*args[:2], threads, self.guest.enter(_STARTING), monotonic_ns())

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record how long it took, and which threads have come."""
        iterator, dataset, threads, before, start_ns = ticket
        dur_ns = monotonic_ns() - start_ns
        if before is not None:
            self.guest.enter(before)
        if error is not None:
            return
        note = self._sources.enter(iterator, dataset)
        self.guest.append(_START_KIND, start_ns, dur_ns, note.source_id)
        self._sources.add_crew(note, list_threads() - threads)


class SeveralStart(Hook):
    """An iterator for several devices: its pipeline starts in C++, beside those of the devices."""

    name = "iterator of several devices"
    forbids = "knowing the threads of a pipeline that serves several devices"

    def __init__(self, guest: Guest, sources: Datasets) -> None:
        super().__init__(guest)
        self._sources = sources

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note who is there before."""
        return args[0], list_threads()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """All threads that have come are those of its first device, whose waits are told."""
        iterator, threads = ticket
        first = next(iter(getattr(iterator, "_device_iterators", None) or ()), None)
        if error is None and hasattr(first, seam.RESOURCE):
            self._sources.add_crew(self._sources.note(first), list_threads() - threads)


class TakeBatch(Hook):
    """`next(iterator)` in Python: the wait for a batch."""

    name = "iterator wait"
    code = "step-hook"
    forbids = "saying how long the training waited for data"

    def __init__(self, guest: Guest, sources: Datasets) -> None:
        super().__init__(guest)
        self._sources = sources

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start, unless Keras takes the batch inside one of its steps."""
        guest, ident = self.guest, get_ident()
        if ident in guest.waiting or ident in guest.fetching:
            return None
        if not guest.trainer:
            guest.appoint()
        guest.waiting.add(ident)
        note = self._sources.note(args[0])
        guest.enter(_WAIT)
        return ident, args[0], note, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record the wait and the size of the batch."""
        now_ns = monotonic_ns()
        ident, iterator, note, start_ns = ticket
        guest = self.guest
        guest.waiting.discard(ident)
        flags, samples = _TRAINING, 0
        if error is None:
            samples = count_samples(result)
            guest.enter(_COMPUTE)
        else:
            flags |= _END if type(error).__name__ in _ENDINGS else _ERROR
            guest.enter(_OUTSIDE)
        guest.append(
            _WAIT_KIND, start_ns, now_ns - start_ns, note.source_id, samples, -1, -1, note.gets,
            flags,
        )  # fmt: skip
        note.gets += error is None
        if self._sources.is_due(note, now_ns) or error is not None:
            self._sources.poll(iterator, note, now_ns)

    def withdraw(self) -> None:
        """This thread waits for no batch."""
        self.guest.waiting.discard(get_ident())
        self.guest.enter(_OUTSIDE)
