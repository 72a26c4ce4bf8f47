"""The elastic iterator: torch's own, whose workers may be more or fewer while an epoch runs.

Order lives in the iterator's task table, not in the workers, so any worker may make any batch. A
worker's place in the round is torch's until the first change; from then on the least busy active
worker gets the next batch. Batches, their order, and what is drawn from the sampler and when, are
those of the plain loader. Workers beyond the job's own were started with the others and are parked.

A worker that the kernel kills is replaced by the others: its batches are made again. Any other end
of a worker is the job's own fault and raised as without us.
"""

from __future__ import annotations

import itertools
import os
import signal
from multiprocessing.connection import wait
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from torch import multiprocessing

from fuelline.fix.elastic import seam
from fuelline.fix.elastic.contexts import Context
from fuelline.fix.elastic.mailboxes import DeadWorker, Errand, ErrandDone, TaskReturned
from fuelline.fix.messages import say

if TYPE_CHECKING:
    from fuelline.fix.elastic.controller import LoaderController

__all__ = ["build"]

_SURVIVED = {signal.SIGKILL, signal.SIGBUS}
"""Ends of a worker that are not its own doing: no memory, no shared memory."""
MOST_DEATHS = 3
"""Of workers at the same batch: then it is the batch, and torch's error is what the job gets."""
LONGEST_END_S = 5.0
"""Until a worker whose pipe is closed counts as one that hangs."""
_plain = seam.WorkersIterator
_ITERABLE = seam.DatasetKind.Iterable


def build(loader: Any, controller: LoaderController) -> Any:
    """An iterator of the loader; the loader itself is not touched."""
    twin = object.__new__(type(loader))
    own = twin.__dict__
    own.update(vars(loader))
    original = loader.multiprocessing_context or multiprocessing
    context = Context(original, controller.regular, controller.spare, controller.most_remote)
    own["num_workers"] = controller.regular
    own["prefetch_factor"] = controller.prefetch
    own["_DataLoader__multiprocessing_context"] = context
    return _MultiProcessingDataLoaderIter(twin, context, controller)


class _MultiProcessingDataLoaderIter(_plain):  # type: ignore[misc, valid-type]
    """Named like torch's own: profilers and users see the name that they know."""

    def __init__(self, twin: Any, context: Context, controller: LoaderController) -> None:
        self._fl_context = context
        self._fl_controller = controller
        self._fl_dead: set[int] = set()
        self._fl_unfit: set[int] = set()
        self._fl_remote: list[int] = []
        """Workers on other hosts that live; numbered after all others."""
        self._fl_since: dict[int, int] = {}
        """Of each of them: how often this iterator had begun an epoch when it came."""
        self._fl_used: set[int] = set()
        """Workers that have run code of the job, or were given tasks at least."""
        self._fl_resets = 0
        self._fl_pid = os.getpid()
        self._fl_is_stream = twin._dataset_kind == _ITERABLE
        self._fl_owed = 0
        super().__init__(twin)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:  # noqa: FBT001, FBT002
        """Begin an epoch, with as many workers as the last one has shown to be right."""
        if first_iter:
            self._fl_take_over()
        own: int = self._num_workers  # type: ignore[has-type]
        self._num_workers = len(self._workers)
        self._fl_sent: dict[int, Any] = {}
        self._fl_deaths: dict[int, int] = {}
        self._fl_loads = [0] * len(self._workers)
        self._fl_start_epoch()
        try:
            super()._reset(loader, first_iter)
        finally:
            self._num_workers = own
        for worker_id in self._fl_dead:
            self._workers_status[worker_id] = False
        self._fl_controller.begin_epoch(self)

    def _fl_take_over(self) -> None:
        """Add the spare workers; deaths are ours to notice from here on, not torch's handler's."""
        seam.forget_workers(id(self))
        self._worker_pids_set = False
        context = self._fl_context
        context.finish()
        for index_queue, worker in context.spares:
            self._index_queues.append(index_queue)
            self._workers.append(worker)
        for worker_id, worker in enumerate(self._workers):
            context.results.watch(worker_id, worker.sentinel)
        self._fl_local = len(self._workers)

    def _fl_start_epoch(self) -> None:
        controller = self._fl_controller
        self.fl_active = controller.start_with(self._fl_usable())
        self.fl_remote = 0
        self._fl_slowness = 1.0
        self._fl_window = controller.window
        self._fl_is_strict = True
        self._fl_round = itertools.cycle(self._fl_usable()[: self.fl_active])
        self._fl_owed = len(self._fl_dead) if self._fl_resets else 0
        self._fl_resets += 1

    def _fl_usable(self) -> list[int]:
        """Workers of this host that can be given work, the job's own first."""
        gone = self._fl_dead | self._fl_unfit
        return [number for number in range(self._fl_local) if number not in gone]

    def _fl_guess_end(self, worker_id: int) -> float:
        """When it would be done with one more batch, in fetches of this host."""
        load = self._fl_loads[worker_id]
        return (load + 1) * self._fl_slowness if worker_id >= self._fl_local else load + 1

    def _fl_working(self) -> list[int]:
        """Workers that are given work."""
        return self._fl_usable()[: self.fl_active] + self._fl_remote[: self.fl_remote]

    def fl_add_remote(self, channel: Any, worker: Any) -> int:
        """A worker on another host, at the other end of the channel; its number."""
        worker_id = len(self._workers)
        self._index_queues.append(channel)
        self._workers.append(worker)
        self._workers_status.append(True)
        self._workers_num_tasks.append(0)
        self._fl_loads.append(0)
        self._fl_remote.append(worker_id)
        self._fl_since[worker_id] = self._fl_resets
        self._fl_context.results.add(worker_id, channel)
        return worker_id

    def fl_send_errand(self, errand: Errand) -> bool:
        """Have a worker that has run nothing of the job do it; whether there is one."""
        usable = self._fl_usable()[self.fl_active :]
        reserve = [n for n in usable if n >= self._num_workers and n not in self._fl_used]
        if not reserve:
            return False
        self._fl_unfit.add(reserve[-1])
        self._index_queues[reserve[-1]].put(errand)
        return True

    def fl_resize(self, active: int, window: int, remote: int = 0, slowness: float = 1.0) -> None:
        """Give work to this many workers from now on, and keep this many batches under way.

        `slowness`: of a fetch on another host, against one on this host.
        """
        self._fl_slowness = slowness
        is_same = (active, remote) == (self.fl_active, self.fl_remote)
        self._fl_is_strict = self._fl_is_strict and is_same
        self.fl_active, self.fl_remote = active, remote
        self._fl_window = window
        self._try_put_index()

    def _try_put_index(self) -> None:
        """Fill the window; torch calls this once for every batch that it gives out."""
        while len(self._task_info) < self._fl_window:
            try:
                index = self._next_index()
            except StopIteration:
                return
            if not self._fl_send(self._send_idx, index):
                return
            self._send_idx += 1
            self._tasks_outstanding += 1

    def _fl_send(self, number: int, index: Any) -> bool:
        """Whether there was a worker for it: those of an iterable dataset end one by one."""
        worker_id = self._fl_choose()
        if worker_id is None:
            return False
        self._index_queues[worker_id].put((number, index))
        self._task_info[number] = (worker_id,)
        self._fl_sent[number] = index
        self._fl_loads[worker_id] += 1
        self._fl_used.add(worker_id)
        self._workers_num_tasks[worker_id] += 1
        return True

    def _fl_choose(self) -> int | None:
        """Torch's own turn until the first change; then whoever has the least to do."""
        if self._fl_is_strict and self._in_order and not self._fl_is_stream:
            return int(next(self._fl_round))
        if not self._fl_is_strict:
            return min(self._fl_working(), key=self._fl_guess_end)
        working = [w for w in self._fl_usable()[: self.fl_active] if self._workers_status[w]]
        most = -(-self._fl_window // max(1, len(working)))
        for _ in range(self.fl_active if working else 0):
            worker_id: int = next(self._fl_round)
            has_room = self._in_order or self._workers_num_tasks[worker_id] < most
            if worker_id in working and has_room:
                return worker_id
        return min(working, key=self._fl_loads.__getitem__, default=None)

    def _get_data(self) -> Any:
        """The next message that is a batch."""
        while True:
            if self._fl_owed:
                self._fl_owed -= 1
                return seam.ResumeIteration(None), None
            number, batch = super()._get_data()
            if type(number) is int and number in self._fl_sent:
                if type(batch) is TaskReturned:
                    self._fl_take_back(batch.worker_id)
                    continue
                self._fl_loads[self._task_info[number][0]] -= 1
                del self._fl_sent[number]
            elif type(number) is DeadWorker:
                self._fl_on_worker_death(number.worker_id)
                continue
            elif type(number) is ErrandDone:
                self._fl_controller.end_errand(self, number.result)
                continue
            return number, batch

    def _next_data(self) -> Any:
        """A batch, timed: what handing it over takes is the trainer's own, and no wait."""
        results = self._fl_context.results
        began_ns, blocked_ns = monotonic_ns(), results.blocked_ns
        batch = super()._next_data()
        ended_ns = monotonic_ns()
        if not self._pin_memory:  # otherwise it is another thread that is blocked
            began_ns = ended_ns - (results.blocked_ns - blocked_ns)
        self._fl_controller.count(self, began_ns, ended_ns, batch)
        return batch

    def _fl_take_back(self, worker_id: int) -> None:
        """A spare worker could not be set up: the others do what it was given."""
        if worker_id in self._fl_remote:
            self._fl_lose_remote(worker_id)
            return
        self._fl_unfit.add(worker_id)
        self._fl_controller.lose(self, "could not be set up")
        self._fl_move(worker_id)

    def _fl_on_worker_death(self, worker_id: int) -> None:
        """A worker is dead: go on with the others, or raise what torch would raise."""
        worker = self._workers[worker_id]
        if not self._workers_status[worker_id]:
            return  # its stream had ended, and so did it
        if worker_id >= self._fl_local or worker_id in self._fl_unfit:
            self._fl_lose_remote(worker_id)
            return
        how = _find_end(worker)
        self._fl_dead.add(worker_id)
        others = self._fl_usable()
        if self._fl_is_deadly(worker_id):
            others = []
        if how not in _SURVIVED or not others or self._fl_is_stream:
            self._fl_raise(worker)
        self._workers_status[worker_id] = False
        if self._fl_context.slots.epochs(worker_id) < self._fl_resets - 1:
            self._fl_owed += 1  # it will not say any more that it begins again
        say(
            f"loader worker {worker.pid} was killed by {signal.Signals(how).name}; "
            f"training goes on with {min(len(others), self.fl_active)}"
        )
        self._fl_controller.lose(self, f"was killed by {signal.Signals(how).name}")
        self._fl_move(worker_id)

    def _fl_lose_remote(self, worker_id: int) -> None:
        """A worker of another host is gone, or one that was to find out about them: no harm."""
        if worker_id not in self._fl_dead:
            self._fl_dead.add(worker_id)
            self._workers_status[worker_id] = False
            if self._fl_context.slots.epochs(worker_id) < self._fl_begun(worker_id):
                self._fl_owed += 1  # it will not say any more that it begins again
        if worker_id in self._fl_remote:
            at = self._fl_remote.index(worker_id)
            del self._fl_remote[at]
            self.fl_remote -= at < self.fl_remote
            self._fl_controller.lose_remote(self)
        else:
            self._fl_controller.end_errand(self, RuntimeError("the worker that packed it died"))
        self._fl_move(worker_id)

    def _fl_begun(self, worker_id: int) -> int:
        """How often a worker was asked to begin again."""
        return self._fl_resets - self._fl_since.get(worker_id, 1)

    def _fl_is_deadly(self, worker_id: int) -> bool:
        """Whether the batch that it was at has now killed a third worker: it would kill all."""
        unfinished = [n for n, entry in self._task_info.items() if entry == (worker_id,)]
        current = min(unfinished, default=-1)
        self._fl_deaths[current] = self._fl_deaths.get(current, 0) + 1
        return current >= 0 and self._fl_deaths[current] >= MOST_DEATHS

    def _fl_move(self, worker_id: int) -> None:
        """Give a worker's unfinished batches to others, under the same numbers."""
        self._fl_is_strict = False
        self.fl_active = min(self.fl_active, len(self._fl_usable()))
        for number, entry in sorted(self._task_info.items()):
            if entry == (worker_id,):
                self._workers_num_tasks[worker_id] -= 1
                self._fl_send(number, self._fl_sent[number])

    def _fl_raise(self, worker: Any) -> None:
        """The error that torch has for this end."""
        seam.note_workers(id(self), (worker.pid,))
        try:
            seam.check_workers()
        finally:
            seam.forget_workers(id(self))
        raise RuntimeError(f"DataLoader worker (pid(s) {worker.pid}) exited unexpectedly")

    def _shutdown_workers(self) -> None:
        """End of the iterator; what its controller is in the middle of ends with it.

        In a forked child that collects its copy of us there is nothing to end: these workers are
        its parent's.
        """
        if os.getpid() != self._fl_pid:
            return
        is_over = getattr(self, "_shutdown", True)
        super()._shutdown_workers()
        if not is_over:
            self._fl_controller.end_epoch()


def _find_end(worker: Any) -> int:
    """The signal that ended a worker; 0 for an exit. The process stays to be asked by torch."""
    if not wait([worker.sentinel], LONGEST_END_S):
        return 0
    try:
        status = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:  # of a fork server, or already asked
        worker.join(LONGEST_END_S)
        return -min(0, worker.exitcode or 0)
    is_signal = status is not None and status.si_code in {os.CLD_KILLED, os.CLD_DUMPED}
    return status.si_status if status is not None and is_signal else 0
