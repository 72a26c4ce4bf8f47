"""The trainer's side of data loading: how long it waits for each batch, and from which loader.

`__next__` of the iterator is wrapped, and `__iter__` of the loader by a plain function, so the job
gets the very iterator it would get without us. Our note on an iterator lives in its own dictionary:
iterators cannot be pickled, and the note dies with them. Loaders are left untouched.
"""

import functools
import sys
import weakref
from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns, thread_time_ns
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info

from fuelline.record.buffer import IteratorNote, TakeSettings, TakeTicket, WaitPhases
from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook, QuickHook
from fuelline.record.hooks.identities import Identities
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.batches import look, measure
from fuelline.record.hooks.torch.settings import describe, describe_iterator, is_spawned
from fuelline.schema.seams import find_missing
from fuelline.schema.wire import Flag, Kind, Phase, tail

__all__ = ["install", "install_stateful"]

NOTE = "_fuelline_note"
UNREACHED = (
    "loader workers that were not forked",
    "fuelline.record() reaches processes that are forked; `fuelline run` would reach these, too",
    "telling what these workers spend their time on: reading, transforming, handing over",
)

UNDETAILED = "knowing each loader's settings and workers, and the sizes of batches for little"

_WAIT_KIND, _START_KIND = int(Kind.WAIT), int(Kind.SOURCE_START)
_SOURCE_KIND, _WORKER_KIND = int(Kind.SOURCE), int(Kind.WORKER)
_TRAINING, _END, _ERROR = int(Flag.TRAINING), int(Flag.END), int(Flag.ERROR)
_WAIT, _COMPUTE, _OUTSIDE = int(Phase.WAIT), int(Phase.COMPUTE), int(Phase.OUTSIDE)
_EVAL_WAIT, _EVAL, _STARTING = int(Phase.EVAL_WAIT), int(Phase.EVAL), int(Phase.SOURCE_START)

_IN_NEXT = frozenset((_WAIT, _EVAL_WAIT))
_TRAINING_WAY = WaitPhases(_WAIT, _COMPUTE, tail(_WAIT_KIND, _TRAINING))
_EVALUATING_WAY = WaitPhases(_EVAL_WAIT, _EVAL, tail(_WAIT_KIND))

_is_grad_enabled = torch.is_grad_enabled
_BaseIterator, _NUM_YIELDED = seam.BaseIterator, seam.NUM_YIELDED
_MAP = seam.DatasetKind.Map
_DATASET_KIND, _COLLATE = seam.DATASET_KIND, seam.COLLATE
_NUM_WORKERS, _PREFETCH = seam.NUM_WORKERS, seam.PREFETCH


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch all loaders of the process."""
    book = _LoaderIds(guest)
    build, take = Build(guest, book), Take(guest, book)
    guest.build = build
    patches.on_undo(book.forget)
    patches.replace(DataLoader, "__iter__", build.wrap(DataLoader.__iter__))
    patches.replace(_BaseIterator, "__next__", take.wrap(_BaseIterator.__next__))
    missing = find_missing(seam.DETAILS.values())
    if missing:
        guest.report_blindspot("details of loaders", missing, UNDETAILED)
    return [build, take]


def install_stateful(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch torchdata's loader, which builds its iterators itself."""
    owner = sys.modules["torchdata.stateful_dataloader.stateful_dataloader"].StatefulDataLoader
    patches.replace(owner, "__iter__", guest.build.wrap(owner.__iter__))
    return []


class _LoaderIds:
    """Which loader an iterator belongs to; writes down each loader once."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._loaders = Identities()
        self._told: set[int] = set()
        self._hiding: dict[int, weakref.ref[Any]] = {}
        self._noted: list[weakref.ref[Any]] = []
        guest.on_fork(self._told.clear)

    def enter(self, loader: Any, iterator: Any) -> IteratorNote:
        """Note the loader on an iterator that it has built or reset."""
        self._guest.is_fed = True
        if not issubclass(type(iterator), _BaseIterator):
            return self._enter_hiding(loader)
        note: IteratorNote | None = vars(iterator).get(NOTE)
        if note is None:
            note = self._note_for(loader)
            self._put(note, iterator)
        return note

    def _put(self, note: IteratorNote, iterator: Any) -> None:
        vars(iterator)[NOTE] = note
        living = [each for each in self._noted if each() is not None]
        self._noted = [*living, weakref.ref(iterator)]
        self._tell_workers(note.source_id, iterator)

    def forget(self) -> None:
        """Take our notes off all iterators: the next recording numbers loaders anew."""
        for each in self._noted:
            iterator = each()
            if iterator is not None:  # its truth would be its length, which a stream has none of
                vars(iterator).pop(NOTE, None)

    def enter_nameless(self, iterator: Any) -> IteratorNote:
        """Note an iterator that was built around `DataLoader.__iter__`."""
        self._guest.is_fed = True
        loader = self._find_hiding(vars(iterator).get(seam.DATASET))
        if loader is not None:
            return self.enter(loader, iterator)
        note = IteratorNote(self._loaders.add_nameless(), None)
        self._tell(note.source_id, describe_iterator(iterator))
        self._put(note, iterator)
        return note

    def _enter_hiding(self, loader: Any) -> IteratorNote:
        """Take note of a loader that gives out something else, as a generator around an iterator.

        The iterator within is met at its first batch, and known by the dataset.
        """
        note = self._note_for(loader)
        if note.source_id not in self._hiding:
            living = {key: ref for key, ref in self._hiding.items() if ref() is not None}
            self._hiding = {**living, note.source_id: weakref.ref(loader)}
        return note

    def _find_hiding(self, dataset: Any) -> Any:
        for ref in self._hiding.values():
            loader = ref()
            if loader is not None and vars(loader).get("dataset") is dataset:
                return loader
        return None

    def _note_for(self, loader: Any) -> IteratorNote:
        loader_id = self._loaders.find(loader) or self._loaders.add(loader)
        if loader_id not in self._told:
            self._told.add(loader_id)
            settings = describe(loader)
            self._tell(loader_id, settings)
            if not self._guest.reaches_spawned and is_spawned(loader):
                self._guest.report_blindspot(*UNREACHED)
        batch_size = vars(loader).get("batch_size")
        return IteratorNote(loader_id, batch_size if type(batch_size) is int else None)

    def _tell(self, loader_id: int, settings: str) -> None:
        self._guest.append(
            _SOURCE_KIND, monotonic_ns(), 0, loader_id, self._guest.spool.text(settings)
        )

    def _tell_workers(self, loader_id: int, iterator: Any) -> None:
        now_ns = monotonic_ns()
        for worker_id, process in enumerate(vars(iterator).get(seam.WORKERS, ())):
            self._guest.append(_WORKER_KIND, now_ns, 0, loader_id, worker_id, process.pid or 0)


class Build(Hook):
    """`iter(loader)`: workers are started here, or told to begin again."""

    name = "loader iterator"
    forbids = "telling loaders apart, and knowing their settings and workers"

    def __init__(self, guest: Guest, book: _LoaderIds) -> None:
        super().__init__(guest)
        self._book = book

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start, unless a dataset uses a loader itself."""
        guest, ident = self.guest, get_ident()
        is_inner = ident in guest.waiting or ident in guest.fetching
        if ident == guest.trainer and guest.spool.buffer.phase in _IN_NEXT:
            is_inner = True
        if is_inner or get_worker_info() is not None:
            return None
        before = guest.enter(_STARTING)
        guest.waiting.add(ident)  # a resumed loader takes the batches that it skips from itself
        return args[0], ident, before, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it, with the settings when the loader is new."""
        loader, ident, before, start_ns = ticket
        dur_ns = monotonic_ns() - start_ns
        self.guest.waiting.discard(ident)
        if before is not None:
            self.guest.enter(before)
        if error is None:
            note = self._book.enter(loader, result)
            self.guest.append(_START_KIND, start_ns, dur_ns, note.source_id)

    def withdraw(self) -> None:
        """This thread builds no iterator."""
        self.guest.waiting.discard(get_ident())
        self.guest.enter(_OUTSIDE)


class Take(QuickHook):
    """`next(iterator)`: the wait for a batch."""

    name = "loader wait"
    code = "step-hook"
    forbids = "saying how long the training waited for data"

    def __init__(self, guest: Guest, book: _LoaderIds) -> None:
        super().__init__(guest)
        self._book = book

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The callable to put in the original's place."""
        thorough = super().wrap(original)
        settings = TakeSettings(
            note=NOTE,
            yielded=_NUM_YIELDED,
            outstanding=seam.OUTSTANDING,
            is_training=_is_grad_enabled,
            look=look,
            training=_TRAINING_WAY,
            evaluating=_EVALUATING_WAY,
        )
        quick = self.quicken(original, thorough, settings=settings)
        if quick is None:
            return thorough
        take = quick.take

        @functools.wraps(original)
        def watched(iterator: Any) -> Any:
            return take(iterator)

        return watched

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start, unless a dataset uses a loader itself."""
        guest = self.guest
        ident = get_ident()
        if ident in guest.waiting or ident in guest.fetching:
            return None
        if guest.is_trainer(ident):
            if self.state.is_inside:
                return None
            self.start_run()
        elif not self._is_first():
            return None
        iterator = args[0]
        note = iterator.__dict__.get(NOTE) or self._book.enter_nameless(iterator)
        is_training, position = _is_grad_enabled(), getattr(iterator, _NUM_YIELDED)
        guest.enter(_WAIT if is_training else _EVAL_WAIT)
        guest.waiting.add(ident)
        if ident == guest.trainer:
            self.state.is_inside = True
        return TakeTicket(
            ident, iterator, note, is_training, position, thread_time_ns(), monotonic_ns()
        )

    def _is_first(self) -> bool:
        """Whether a thread that is not the trainer counts; makes it the trainer if none is."""
        if get_worker_info() is not None:
            return False
        if not self.guest.trainer:
            self.guest.appoint()
        return True

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record the wait and the size of the batch."""
        now_ns = monotonic_ns()
        ident, iterator, note, is_training, position, cpu_ns, start_ns = ticket
        used_ns = thread_time_ns() - cpu_ns if cpu_ns else -1
        guest = self.guest
        guest.waiting.discard(ident)
        self.leave(ident)
        flags = _TRAINING if is_training else 0
        if error is None:
            samples, size_bytes = measure(result, note.batch_size)
            vars(iterator)[NOTE] = _learn(note, iterator, samples)
            guest.enter(_COMPUTE if is_training else _EVAL)
        else:
            samples = size_bytes = 0
            flags |= _END if isinstance(error, StopIteration) else _ERROR
            guest.enter(_OUTSIDE)
        guest.append(
            _WAIT_KIND, start_ns, now_ns - start_ns, note[0], samples, size_bytes, used_ns,
            position, flags,
        )  # fmt: skip

    def withdraw(self) -> None:
        """This thread waits for no batch."""
        ident = get_ident()
        self.guest.waiting.discard(ident)
        self.leave(ident)
        self.guest.enter(_OUTSIDE)


def _learn(note: IteratorNote, iterator: Any, samples: int) -> IteratorNote:
    """The note after a batch was looked into: whether its size can be foretold from now on."""
    own = vars(iterator)
    # Each worker that reads a stream ends with a smaller batch of its own, and a collate function
    # of the job's may leave samples out.
    is_map = own.get(_DATASET_KIND) == _MAP
    is_default = own.get(_COLLATE) is default_collate
    enough = sys.maxsize
    if is_map and is_default and samples == note.batch_size:
        enough = own.get(_NUM_WORKERS, 0) * own.get(_PREFETCH, 0) or samples
    return note if enough == note.enough else note._replace(enough=enough)
