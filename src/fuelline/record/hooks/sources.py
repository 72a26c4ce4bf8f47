"""Sources that are asked by one `next()`: a library's iterator, or one that a user has named.

The outermost `next()` of the thread that trains is the wait; those within it are part of it. Who
reads and prepares is found by its reader (`signals/recorded/fetching/feeders.py`).

    for batch in fuelline.watch(source):       the wait is what `source` takes for each batch
"""

import json
import os
import sys
import weakref
from _thread import get_ident
from collections.abc import Iterable, Iterator
from multiprocessing import parent_process
from time import monotonic_ns
from typing import Any, Generic, TypeVar

from fuelline.record.hooks.guest import Framework, Guest, find_guest, join, list_begun
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.waits import PYTHON
from fuelline.schema.wire import RUN_DIR_VARIABLE, Flag, Kind, Phase

__all__ = ["TakeElement", "Watched", "count_samples"]

Batch = TypeVar("Batch")

WATCHED_ID = 1 << 22
"""Of what users name; those of libraries are numbered from lower ones."""
_WAIT_KIND, _SOURCE_KIND = int(Kind.WAIT), int(Kind.SOURCE)
_TRAINING, _END, _ERROR = int(Flag.TRAINING), int(Flag.END), int(Flag.ERROR)
_WAIT, _COMPUTE, _OUTSIDE = int(Phase.WAIT), int(Phase.COMPUTE), int(Phase.OUTSIDE)
_BETWEEN = frozenset((_OUTSIDE, _COMPUTE))


class TakeElement(Hook):
    """`next(iterator)` of any iterator of a library."""

    name = "source wait"
    code = "step-hook"
    forbids = "saying how long the training waited for data"
    first_id: int

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self.forget()
        guest.on_fork(self.forget)

    def forget(self) -> None:
        """Begin again, in a forked child."""
        self._last: weakref.ref[Any] | None = None
        self._source_id = self.first_id - 1
        self._position = 0

    def describe(self, iterator: Any) -> dict[str, Any]:
        """The settings of a source; `loader` and `framework` among them."""
        raise NotImplementedError

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start, of an outermost call of the thread that trains."""
        guest, ident = self.guest, get_ident()
        if ident in guest.waiting or ident in guest.fetching:
            return None
        if ident != guest.trainer:
            if guest.trainer or parent_process() is not None:
                return None  # a worker of the source's; one that trains is known by its steps
            guest.appoint()
        if guest.spool.buffer.phase not in _BETWEEN or self.is_taken_over():
            return None
        if self.claim(args[0]):
            guest.waiting.add(ident)
            guest.enter(_WAIT)
        return ident, args[0], monotonic_ns()

    def claim(self, iterator: Any) -> bool:
        """Note that batches come from here, so that no other wait is for one.

        Also whether nobody else's hooks need to see what happens inside.
        """
        self.guest.is_fed = True
        return True

    def is_taken_over(self) -> bool:
        """Whether what would be recorded here is recorded by another source's hooks."""
        return False

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record the wait and the size of the batch."""
        now_ns = monotonic_ns()
        ident, iterator, start_ns = ticket
        guest = self.guest
        guest.waiting.discard(ident)
        guest.enter(_COMPUTE if error is None else _OUTSIDE)
        if self.is_taken_over():
            return
        if not self.is_same(iterator):
            self._meet(iterator)
        flags, samples = _TRAINING if guest.is_learning() else 0, 0
        if error is None:
            samples = count_samples(result)
        else:
            flags |= _END if isinstance(error, StopIteration) else _ERROR
        guest.append(
            _WAIT_KIND, start_ns, now_ns - start_ns, self._source_id, samples, -1, -1,
            self._position, flags,
        )  # fmt: skip
        self._position += 1

    def withdraw(self) -> None:
        """This thread waits for no batch."""
        self.guest.waiting.discard(get_ident())
        self.guest.enter(_OUTSIDE)

    def is_same(self, iterator: Any) -> bool:
        """Whether it gave the last batch, too."""
        return self._last is not None and self._last() is iterator

    def _meet(self, iterator: Any) -> None:
        """An iterator that is new: it begins an epoch, or is another source."""
        self._last = weakref.ref(iterator)
        self._source_id, self._position = self._source_id + 1, 0
        text = self.guest.spool.text(json.dumps(self.describe(iterator)))
        self.guest.append(_SOURCE_KIND, monotonic_ns(), 0, self._source_id, text)


def count_samples(batch: Any) -> int:
    """Length of the first array's first dimension; -1 if it has none."""
    while isinstance(batch, tuple | list | dict) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else -1


class TakeWatched(TakeElement):
    """`next()` of what a user has named; a source with hooks of its own below it speaks for it."""

    name = "watched source"
    first_id = WATCHED_ID

    def describe(self, iterator: Any) -> dict[str, Any]:
        """Its name, and that it is the job's own."""
        return {"loader": iterator.name, "framework": PYTHON}

    def claim(self, iterator: Any) -> bool:
        """Waits elsewhere in Python's library are for something else.

        With its first batch a source may turn out to hold one that has hooks.
        """
        self.guest.is_watched = True
        return self.is_same(iterator)

    def is_taken_over(self) -> bool:
        """As a DataLoader within a generator that is watched."""
        return self.guest.is_fed


def _find_host() -> Guest | None:
    """Our presence in this process; made here if the job uses no framework that we know."""
    guest, run_dir = find_guest(), os.environ.get(RUN_DIR_VARIABLE)
    site = sys.modules.get("fuelline_watch")
    if guest is not None or not run_dir or site is None or not site.is_this_host():
        return guest
    folder = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120 - no pathlib
    guest = join(os.path.abspath(run_dir), Framework(PYTHON, folder, (), bool))  # noqa: PTH100
    guest.introduce(
        {
            "framework": PYTHON,
            "version": "",
            "python": sys.version.split()[0],
            "begun": list_begun(),
            "program": sys.argv[0].rpartition("/")[2] if sys.argv else "",
        }
    )
    return guest


class Watched(Generic[Batch]):
    """What `fuelline.watch` gives: the source's own elements, each with the time it took."""

    def __init__(self, source: Iterable[Batch], name: str | None = None) -> None:
        self._source = source
        self._name = name or getattr(source, "__name__", "") or type(source).__name__

    def __iter__(self) -> Iterator[Batch]:
        """As the source's own, of which there may be several, one after the other."""
        return _WatchedIterator(iter(self._source), self._name)

    def __len__(self) -> int:
        """The source's, if it has one."""
        return len(self._source)  # type: ignore[arg-type] # it says so itself if it has none

    def __bool__(self) -> bool:
        """The source's."""
        return bool(self._source)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the source has, such as a sampler whose epoch is to be set."""
        if name == "_source":
            raise AttributeError(name)  # it is being copied, and not made yet
        return getattr(self._source, name)


class _WatchedIterator(Iterator[Batch]):
    """One pass; without a recorder, or below another source's hooks, nothing but the source's."""

    def __init__(self, elements: Iterator[Batch], name: str) -> None:
        self._elements = elements
        self.name = name
        guest = _find_host()
        self._take = _next_of if guest is None else _hook_of(guest).wrap(_next_of)

    def __next__(self) -> Batch:
        """The next batch; how long that takes is recorded."""
        batch: Batch = self._take(self)
        return batch

    def read(self) -> Batch:
        """The same, unrecorded."""
        return next(self._elements)


def _next_of(iterator: _WatchedIterator[Batch]) -> Batch:
    return iterator.read()


def _hook_of(guest: Guest) -> TakeWatched:
    """One hook for all that is watched: sources are numbered by it."""
    if guest.watched is None:
        guest.watched = TakeWatched(guest)
    hook: TakeWatched = guest.watched
    return hook
