"""The workers' side of data loading: fetching a batch, collating it, and handing it over.

With `num_workers=0` the same fetchers run in the trainer; their worker id is then -1. Serialisation
is watched in worker processes only, where the queue's feeder thread does it.
"""

import functools
import weakref
from _thread import get_ident
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from time import monotonic_ns, thread_time_ns
from typing import Any

from torch.utils.data import get_worker_info

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook, QuickHook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.batches import measure
from fuelline.schema.wire import Flag, Kind

__all__ = ["install"]

_FETCH, _FETCH_IO, _HANDOFF = int(Kind.FETCH), int(Kind.FETCH_IO), int(Kind.HANDOFF)
_END, _ERROR = int(Flag.END), int(Flag.ERROR)

_StreamEnd = seam.StreamEnd


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch the fetchers of this process and of the workers that will be forked from it."""
    handoff = Handoff(guest)
    hook = Fetch(guest, lambda: handoff.start(patches), patches.undo)
    patches.on_undo(hook.restore)
    for owner in (seam.MapFetcher, seam.IterableFetcher):
        patches.replace(owner, "fetch", hook.wrap(owner.fetch))
    return [hook, handoff]


class TimedCollate:
    """Stands in for a fetcher's `collate_fn` and keeps how long it took the last time."""

    __slots__ = ("dur_ns", "original", "samples")

    def __init__(self, original: Callable[[Any], Any]) -> None:
        self.original = original
        self.dur_ns = 0
        self.samples = 0

    def __call__(self, data: Any) -> Any:
        """Collate; the list that comes in has as many entries as there are samples."""
        self.samples = len(data) if type(data) is list else 0
        start_ns = monotonic_ns()
        result = self.original(data)
        self.dur_ns = monotonic_ns() - start_ns
        return result


class Fetch(QuickHook):
    """A fetcher makes one batch: the reads, the transforms and the collate of it.

    In the trainer, reading the counters is time lost: while steps are so quick that records are
    held, most calls there leave none.
    """

    name = "worker fetch"
    forbids = "telling what the loader's workers spend their time on"

    def __init__(
        self, guest: Guest, on_worker: Callable[[], None], leave: Callable[[], None]
    ) -> None:
        super().__init__(guest)
        self._on_worker = on_worker
        self._leave = leave
        self._timed: list[weakref.ref[Any]] = []

    def restore(self) -> None:
        """Give the fetchers that live on their own `collate_fn` back."""
        for each in self._timed:
            fetcher = each()
            if fetcher is not None and type(fetcher.collate_fn) is TimedCollate:
                fetcher.collate_fn = fetcher.collate_fn.original

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The callable to put in the original's place."""
        thorough = super().wrap(original)
        quick = self.quicken(original, thorough)
        if quick is None:
            return thorough
        fetch = quick.fetch

        @functools.wraps(original)
        def watched(fetcher: Any, possibly_batched_index: Any) -> Any:  # as torch names them
            return fetch(fetcher, possibly_batched_index)

        return watched

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the thread's counters, unless this fetch is part of another one."""
        guest, ident = self.guest, get_ident()
        if ident in guest.fetching or (self.state.is_inside and ident == guest.trainer):
            return None
        buffer, state = guest.spool.buffer, self.state
        buffer.fetched = 0
        if ident == guest.trainer and buffer.write_at and state.quick_calls > 0:
            state.quick_calls -= 1  # the compiled part, if there is one, has spared it already
            return None
        worker = get_worker_info()
        if worker is not None:
            if guest.is_over is not None and guest.is_over():
                self._leave()
                return None
            self._on_worker()
        fetcher = args[0]
        collate = fetcher.collate_fn
        if type(collate) is not TimedCollate:
            # A fetcher lives and dies in one process and is never pickled.
            collate = fetcher.collate_fn = TimedCollate(collate)
            living = [each for each in self._timed if each() is not None]
            self._timed = [*living, weakref.ref(fetcher)]
        collate.dur_ns = collate.samples = 0
        guest.fetching.add(ident)
        if ident == guest.trainer:
            self.start_run()
            self.state.is_inside = True
        before = guest.lane.clock.start()
        worker_id = -1 if worker is None else worker.id
        return worker_id, collate, before, thread_time_ns(), monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record what the fetch took."""
        now_ns = monotonic_ns()
        guest = self.guest
        self.withdraw()
        worker_id, collate, before, cpu_ns, start_ns = ticket
        dur_ns = now_ns - start_ns
        used_ns = thread_time_ns() - cpu_ns
        used = guest.lane.clock.stop(before, dur_ns)
        flags = 0
        if error is not None:
            flags = _END if isinstance(error, StopIteration) else _ERROR
        samples = collate.samples or (measure(result, None)[0] if error is None else 0)
        guest.append(
            _FETCH, start_ns, dur_ns, worker_id, samples, used_ns, used.queued_ns,
            collate.dur_ns, flags,
        )  # fmt: skip
        guest.append(
            _FETCH_IO, start_ns, dur_ns, used.rchar_bytes, used.disk_bytes, used.read_calls,
            used.major_faults, used.system_ns, flags,
        )  # fmt: skip
        if used.queued_ns < 0 or used.rchar_bytes < 0:
            self._report_blindness()

    def withdraw(self) -> None:
        """This thread fetches nothing."""
        ident = get_ident()
        self.guest.fetching.discard(ident)
        self.leave(ident)

    def _report_blindness(self) -> None:
        self.guest.report_blindspot(
            "a worker's own run-queue delay and bytes read",
            "/proc/thread-self/schedstat or io cannot be read here",
            "telling slow storage from slow CPU by the worker's own counters",
        )


class Handoff(Hook):
    """A worker serialises a batch for the trainer."""

    name = "worker handoff"
    forbids = "telling how long batches take to be serialised"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._is_started = False

    def start(self, patches: Patches) -> None:
        """Begin in this process, which has turned out to be a worker."""
        if self._is_started:
            return
        self._is_started = True
        original = vars(ForkingPickler)["dumps"].__func__
        patches.replace(ForkingPickler, "dumps", classmethod(self.wrap(original)))

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start if this is a numbered batch and not some other message."""
        message = args[1]
        if type(message) is not tuple or len(message) != 2 or type(message[0]) is not int:
            return None
        if type(message[1]) is _StreamEnd:
            return None
        return message[1], thread_time_ns(), monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record the time, what went through the pipe, and how large the batch is."""
        now_ns, now_cpu_ns = monotonic_ns(), thread_time_ns()
        batch, cpu_ns, start_ns = ticket
        pickled_bytes = len(result) if error is None else 0
        self.guest.append(
            _HANDOFF,
            start_ns,
            now_ns - start_ns,
            pickled_bytes,
            now_cpu_ns - cpu_ns,
            get_worker_info().id,
            measure(batch, None)[1],
            flags=0 if error is None else _ERROR,
        )
