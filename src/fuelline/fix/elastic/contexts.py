"""Stands in for the loader's multiprocessing context: gives torch its queues, starts its workers.

Torch's own constructor asks it for one queue of results, an event, and a queue and a process for
each worker. What it gets are a result queue, a flag without a lock, channels for indices and
results, and processes whose inbox and outbox are ours. Spare workers are started before the last
regular one, so before any thread of the loader: nothing is forked later. A spare one that cannot
be started is simply not there.
"""

from __future__ import annotations

import gc
import inspect
import os
import threading
from typing import Any

from fuelline.fix.elastic.channel import SocketChannel
from fuelline.fix.elastic.mailboxes import Inbox, Outbox, SharedFlag, Slots, WorkerStart
from fuelline.fix.elastic.result_queue import ResultQueue
from fuelline.fix.elastic.segments import SegmentTable

__all__ = ["Context"]


_SEEDS = ("base_seed", "num_workers", "persistent_workers", "shared_seed")


class Context:
    """The context of one iterator."""

    def __init__(self, original: Any, regular: int, spare: int, remote: int = 0) -> None:
        self._original = original
        self._regular = regular
        self._spare = spare
        self.slots = Slots(original, regular + spare, remote)
        self.given: dict[str, Any] = {}
        """What torch's loops are called with in this iterator, and in each worker alike."""
        self.results = ResultQueue()
        self.spares: list[tuple[Any, Any]] = []
        """Index queue and process of each spare worker that was started."""
        self.problem: str | None = None
        """Why there are fewer of them than were asked for."""
        self._asked = 0
        self._made = 0
        self._far: SocketChannel | None = None
        """The end of the worker that was made last."""
        is_main = threading.current_thread() is threading.main_thread()
        self._parent = os.getpid() if is_main and _forks(original) else 0

    def Queue(self) -> Any:  # noqa: N802 - the name in multiprocessing
        """The result queue first, as torch asks for it first, then index queues."""
        self._asked += 1
        if self._asked == 1:
            return self.results
        self._let_go()
        return SocketChannel()

    def Event(self) -> SharedFlag:  # noqa: N802 - as above
        """What makes workers stop."""
        return SharedFlag(self._original)

    def Process(self, target: Any, args: tuple[Any, ...]) -> Any:  # noqa: N802 - as above
        """A regular worker, after the spare ones if it is the last."""
        worker_id, self._made = self._made, self._made + 1
        if self._made == self._regular and self._spare:
            _Starting.spares = True
            try:
                self._start_spares(target, args)
            finally:
                _Starting.spares = False
        worker = self._make(target, args, worker_id, is_spare=False)
        self._listen(worker_id, inspect.signature(target).bind(*args).arguments["index_queue"])
        return worker

    def _listen(self, worker_id: int, near: SocketChannel) -> None:
        near.table = SegmentTable()
        self.results.add(worker_id, near)

    def _start_spares(self, target: Any, args: tuple[Any, ...]) -> None:
        for number in range(self._spare):
            near = SocketChannel()
            changed = inspect.signature(target).bind(*args)
            changed.arguments["index_queue"] = near
            try:
                worker = self._make(target, changed.args, self._regular + number, is_spare=True)
                worker.daemon = True
                worker.start()
            except (OSError, RuntimeError, MemoryError) as refusal:
                self.problem = f"{type(refusal).__name__}: {refusal}"
                return
            finally:
                self._let_go()
            self._listen(self._regular + number, near)
            self.spares.append((near, worker))

    def _make(self, target: Any, args: tuple[Any, ...], worker_id: int, *, is_spare: bool) -> Any:
        """A process for torch's loop, with our mailboxes around its queues."""
        bound = inspect.signature(target).bind(*args)
        own = bound.arguments
        self._far = own["index_queue"].connect()
        start = WorkerStart(own["init_fn"], self.slots, is_spare=is_spare)
        inbox = Inbox(self._far, self.slots, worker_id, start, self._parent)
        self.given = {name: own.get(name) for name in _SEEDS}
        outbox = Outbox(self._far)
        inbox.bind(outbox)
        own |= {
            "index_queue": inbox, "data_queue": outbox, "init_fn": start, "worker_id": worker_id,
        }  # fmt: skip
        if is_spare:  # only these are forked for certain, which copies nothing
            inbox.given = dict(own)
        return self._original.Process(target=target, args=bound.args)

    def _let_go(self) -> None:
        """Close our copy of the last worker's end, so that it alone has it.

        Otherwise workers forked later had it, too, and the line of a dead worker never ended.
        """
        far, self._far = self._far, None
        if far is not None:
            far.close()

    def finish(self) -> None:
        """All are started."""
        self._let_go()


class _Starting:
    """Whether spare workers are being forked."""

    spares = False


def _freeze_in_spare() -> None:
    """Right after its fork: a spare worker does not search its parent's objects for garbage.

    It would soon, if its parent was about to: 100 ms, and a copy of every page that has objects.
    """
    if _Starting.spares:
        gc.freeze()


os.register_at_fork(after_in_child=_freeze_in_spare)


def _forks(context: Any) -> bool:
    """Whether workers are children of this process."""
    return str(context.get_start_method()) in {"fork", "spawn"}
