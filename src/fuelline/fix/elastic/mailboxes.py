"""The worker's side of the elastic loader: what stands between torch's own worker loop and us.

The loop is torch's, unchanged. It asks its inbox for the next indices and puts batches into its
outbox; these two count, look after the random streams between the one and the other, and see to it
that the worker dies with its job. A parked worker waits in its inbox and has run no code of the
job: the `worker_init_fn` of a spare one is called with its first batch.

Whatever is pickled here is found by its module, after torch's loop was: also where workers are
spawned in an environment without us.
"""

from __future__ import annotations

import ctypes
import os
import queue
import select
import signal
import sys
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import get_worker_info

from fuelline.fix.elastic import seam
from fuelline.fix.elastic.purity import PurityCheck, list_values
from fuelline.fix.elastic.segments import SegmentPool, allocate_collated_in

if TYPE_CHECKING:
    from fuelline.fix.elastic.channel import SocketChannel

__all__ = [
    "DeadWorker",
    "Errand",
    "ErrandDone",
    "Inbox",
    "Outbox",
    "SharedFlag",
    "Slots",
    "TaskReturned",
    "WorkerStart",
]

PR_SET_PDEATHSIG = 1
"""See prctl(2)."""
_FIELDS = 6
_STATE, _VARIES, _BUSY, _CPU, _COUNT, _EPOCH = range(_FIELDS)
_READY, _UNFIT = 1, 2


class DeadWorker(NamedTuple):
    """In place of a batch's number: this worker is dead."""

    worker_id: int


class TaskReturned(NamedTuple):
    """In place of a batch: a spare worker could not be set up, and gives the task back."""

    worker_id: int


class Errand(NamedTuple):
    """In place of a task, for a parked worker: call this with what the worker was started with."""

    function: Any
    arguments: tuple[Any, ...]


class ErrandDone(NamedTuple):
    """In place of a batch's number: what the errand's function gave, or the exception it raised."""

    worker_id: int
    result: Any


class Usage(NamedTuple):
    """What a worker has done since it started."""

    busy_ns: int
    cpu_ns: int
    fetches: int


class Slots:
    """A few numbers a worker, in memory that all processes share; each has one writer."""

    def __init__(self, context: Any, count: int, remote: int = 0) -> None:
        self._words = context.RawArray("q", (count + remote) * _FIELDS)
        self._local = count * _FIELDS

    def set_ready(self, worker_id: int) -> None:
        """The worker waits for indices."""
        self._words[worker_id * _FIELDS + _STATE] = _READY

    def set_unfit(self, worker_id: int) -> None:
        """The worker could not be set up."""
        self._words[worker_id * _FIELDS + _STATE] = _UNFIT

    def set_varying(self, worker_id: int) -> None:
        """What the worker gives depends on the worker."""
        self._words[worker_id * _FIELDS + _VARIES] = 1

    def is_varying(self) -> bool:
        """Whether any worker saw that."""
        return any(self._words[_VARIES::_FIELDS])

    def add(self, worker_id: int, busy_ns: int, cpu_ns: int) -> None:
        """Count one fetch."""
        at = worker_id * _FIELDS
        self._words[at + _BUSY] += busy_ns
        self._words[at + _CPU] += cpu_ns
        self._words[at + _COUNT] += 1

    def add_epoch(self, worker_id: int) -> None:
        """The worker has begun again."""
        self._words[worker_id * _FIELDS + _EPOCH] += 1

    def epochs(self, worker_id: int) -> int:
        """How often it did."""
        return int(self._words[worker_id * _FIELDS + _EPOCH])

    def usage(self) -> Usage:
        """Of all workers of this host together."""
        words = self._words[: self._local]
        return Usage(*(sum(words[field::_FIELDS]) for field in (_BUSY, _CPU, _COUNT)))


class SharedFlag:
    """An event without a lock: a worker that is killed cannot take it along."""

    def __init__(self, context: Any) -> None:
        self._cell = context.RawArray("b", 1)

    def set(self) -> None:
        """Make it so."""
        self._cell[0] = 1

    def is_set(self) -> bool:
        """Whether it was set."""
        return bool(self._cell[0])


class WorkerStart:
    """Stands in for `worker_init_fn`: notes what it does to the dataset; spares call it later."""

    def __init__(self, original: Any, slots: Slots, *, is_spare: bool) -> None:
        self.original = original
        self._slots = slots
        self.is_spare = is_spare

    def __call__(self, worker_id: int) -> None:
        """Called by torch's loop, in the worker."""
        if self.original is not None and not self.is_spare:
            self.run(worker_id)

    def run(self, worker_id: int) -> None:
        """The user's function; a dataset that it changed is this worker's own from then on."""
        if self.original is None:
            return
        dataset = get_worker_info().dataset
        before = list(map(id, list_values(dataset)))
        self.original(worker_id)
        if list(map(id, list_values(dataset))) != before:
            self._slots.set_varying(worker_id)


class Inbox:
    """Gives torch's loop its indices."""

    def __init__(
        self, line: SocketChannel, slots: Slots, worker_id: int, start: WorkerStart, parent: int
    ) -> None:
        self._line = line
        self._slots = slots
        self._worker_id = worker_id
        self._start = start
        self._parent = parent
        self._outbox: Outbox | None = None
        self._is_fresh = True
        self.given: dict[str, Any] = {}
        """What torch's loop was called with, in a worker that may be sent on an errand."""

    def bind(self, outbox: Outbox) -> None:
        """Know the other half of this worker."""
        self._outbox = outbox

    def get(self, timeout: float | None = None) -> Any:
        """As a queue does; `queue.Empty` passes through."""
        if self._is_fresh:
            self._settle_in()
        while True:
            message = self._receive(timeout)
            if type(message) is Errand:
                self._run(message)
                continue
            if type(message) is not tuple or self._is_set_up(message):
                if self._outbox is not None:
                    self._outbox.begin()
                return message

    def _run(self, errand: Errand) -> None:
        """The worker gets no tasks from then on: its copy of the dataset is no longer fresh."""
        try:
            result = errand.function(self.given, *errand.arguments)
        except Exception as failure:  # noqa: BLE001 - code of the job's own runs in it; told as it is
            result = RuntimeError(f"{type(failure).__name__}: {failure}")
        self._line.put((ErrandDone(self._worker_id, result), None))

    def _receive(self, timeout_s: float | None) -> Any:
        while self._line.wait(timeout_s):
            try:
                return self._line.receive()
            except BlockingIOError:  # noqa: PERF203 - the rest of it is under way
                continue
            except EOFError:  # nothing will come: torch's loop asks whether the trainer lives
                select.select([], [], [], timeout_s)
                break
        if self._line.pool is not None:
            self._line.pool.rest()
        raise queue.Empty

    def _settle_in(self) -> None:
        self._is_fresh = False
        die_with(self._parent)
        self._slots.set_ready(self._worker_id)
        info: Any = get_worker_info()
        seam.replace_worker_info(_watched(info, self._slots))
        if self._outbox is not None:
            self._outbox.settle_in(info.dataset, self._slots, self._worker_id)

    def _is_set_up(self, task: tuple[int, Any]) -> bool:
        """Call the user's start function with the first task of a spare worker."""
        if not self._start.is_spare:
            return True
        self._start.is_spare = False
        try:
            self._start.run(self._worker_id)
        except Exception:  # noqa: BLE001 - the job's own function; a regular worker takes the task
            self._start.is_spare = True
            self._slots.set_unfit(self._worker_id)
            if self._outbox is not None:
                self._outbox.give_back(task[0], self._worker_id)
            return False
        return True


class Outbox:
    """Takes batches from torch's loop."""

    def __init__(self, line: SocketChannel) -> None:
        self._line = line
        self._slots: Slots | None = None
        self._watcher: PurityCheck | None = None
        self._worker_id = 0
        self._is_new = True
        """No fetch yet in this epoch; between fetches nothing of the job runs here."""
        self._began_ns = 0
        self._began_cpu_ns = 0

    def settle_in(self, dataset: Any, slots: Slots, worker_id: int) -> None:
        """Begin to watch, in the worker."""
        self._slots, self._worker_id = slots, worker_id
        self._watcher = PurityCheck(dataset)
        self._line.pool = SegmentPool()
        allocate_collated_in(self._line.pool)

    def begin(self) -> None:
        """A task has arrived."""
        if self._is_new and self._watcher is not None:
            self._watcher.settle()
            self._is_new = False
        self._began_ns, self._began_cpu_ns = monotonic_ns(), thread_time_ns()

    def put(self, message: Any) -> None:
        """As a queue does."""
        if self._slots is None:
            pass
        elif type(message[0]) is not int:
            self._slots.add_epoch(self._worker_id)
            self._is_new = True
        else:
            busy_ns = monotonic_ns() - self._began_ns
            self._slots.add(self._worker_id, busy_ns, thread_time_ns() - self._began_cpu_ns)
            if self._watcher is not None and self._watcher.end(busy_ns):
                self._slots.set_varying(self._worker_id)
                self._watcher = None  # there is nothing more to find out
        self._send(message)

    def _send(self, message: Any) -> None:
        """What cannot be pickled is an error in its place; torch's queue would only print it."""
        try:
            self._line.put(message)
        except Exception:  # noqa: BLE001 - pickling calls code of the job's own
            where = f"in DataLoader worker process {self._worker_id}"
            self._line.put((message[0], seam.ExceptionWrapper(where=where)))

    def give_back(self, number: int, worker_id: int) -> None:
        """Return a task that this worker cannot do."""
        self._line.put((number, TaskReturned(worker_id)))

    def cancel_join_thread(self) -> None:
        """As a queue does; the line has no thread that holds up the process."""

    def close(self) -> None:
        """As a queue does."""
        self._line.close()


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent's main thread ends, also by SIGKILL.

    Torch's own watch notices within five seconds, and not at all while a fetch hangs. `parent` is 0
    where the thread that made us may end before the job does: then torch's watch has to do.
    """
    if not parent:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _watched(info: Any, slots: Slots) -> Any:
    """The worker's own description, which notices when the job asks it who it is."""
    kind = type(info)

    class Watched(kind):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            if name in {"id", "seed", "num_workers"}:
                asker = sys._getframe(1).f_globals.get("__name__", "")
                if not asker.startswith(("fuelline.", "torch.utils.data.")):
                    slots.set_varying(object.__getattribute__(self, "id"))
            return object.__getattribute__(self, name)

    Watched.__name__, Watched.__qualname__ = kind.__name__, kind.__qualname__
    Watched.__module__ = kind.__module__
    try:
        twin = object.__new__(Watched)
        for name in _fields_of(info):
            object.__setattr__(twin, name, getattr(info, name))
    except (AttributeError, TypeError):
        return info  # another torch: who asks is not noticed there
    return twin


def _fields_of(info: Any) -> list[str]:
    names = getattr(info, "__dataclass_fields__", None)
    return list(names) if names is not None else list(vars(info))
