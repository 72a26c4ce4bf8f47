"""The whole run: takes in what each look brought and gives the snapshot that is shown."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from fuelline.schema.diagnosis.live import RankRow, Snapshot, WorkerRow
from fuelline.schema.run import samples
from fuelline.schema.run.recording import Blindspot
from fuelline.schema.wire import Kind
from fuelline.signals.live.host import LiveDevices, LiveHost
from fuelline.signals.live.threads import LiveThreads
from fuelline.signals.live.trainer import LiveTrainer
from fuelline.signals.live.window import WINDOW_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.diagnosis.live import RunGrowth, SpoolGrowth


class LiveRun:
    """A run as it is known by now."""

    def __init__(self, growth: RunGrowth) -> None:
        self._trainers: dict[int, LiveTrainer] = {}
        self._fetches: dict[int, deque[tuple[int, int]]] = {}
        self._alive: dict[int, bool | None] = {}
        self._threads = LiveThreads()
        self._host = LiveHost()
        self._devices = LiveDevices()
        self._takers: dict[type, Callable[[Any], None]] = {
            samples.Place: self._threads.add_place,
            samples.ThreadState: self._threads.add_state,
            samples.ThreadClock: self._threads.add_clock,
            samples.HostSample: self._host.add,
            samples.Limits: self._host.add_limits,
            samples.DeviceSeen: self._devices.add,
            samples.DeviceSample: self._devices.add_sample,
        }
        self._growth = growth
        self.add(growth)

    def add(self, growth: RunGrowth) -> None:
        """Take in one look."""
        self._growth = growth
        for spool in growth.spools:
            self._alive[spool.pid] = spool.is_alive
            if spool.trainer_tid:
                self._take_trainer(spool)
            else:
                self._take_fetches(spool)
        for row in growth.rows:
            take = self._takers.get(type(row))
            if take is not None:
                take(row)
        self._threads.forget()

    def snapshot(self, *, workers: bool) -> Snapshot:
        """What is shown now; without the workers it takes half the time."""
        growth = self._growth
        ended_ns = growth.run.ended_ns
        now_ns = growth.now_ns if ended_ns is None else ended_ns
        return Snapshot(
            run=growth.run,
            state=growth.state,
            run_s=max(0, now_ns - growth.run.started_ns) / 1e9,
            window_s=WINDOW_NS / 1e9,
            ranks=[self._row(trainer, workers=workers) for trainer in self._trainers.values()],
            host=self._host.line(),
            devices=self._devices.rows(),
            blindspots=[*growth.blindspots, *self._hidden_waits()],
        )

    def _take_trainer(self, spool: SpoolGrowth) -> None:
        trainer = self._trainers.get(spool.pid)
        if trainer is None:
            self._trainers[spool.pid] = LiveTrainer(spool)
        else:
            trainer.add(spool)

    def _take_fetches(self, spool: SpoolGrowth) -> None:
        fetches = self._fetches.setdefault(spool.pid, deque())
        for event in spool.events:
            if event.kind == Kind.FETCH:
                fetches.append((event.start_ns + event.dur_ns, event.dur_ns))

    def _row(self, trainer: LiveTrainer, *, workers: bool) -> RankRow:
        return trainer.row(self._growth.now_ns, self._workers_of(trainer) if workers else [])

    def _workers_of(self, trainer: LiveTrainer) -> list[WorkerRow]:
        own = self._worker_row(trainer.pid, trainer.tid)
        workers = [
            self._worker_row(each.pid, each.pid, each.worker_id, each.source_id)
            for _, each in sorted(trainer.workers.items())
        ]
        return [own, *(each for each in workers if self._is_there(each))]

    def _worker_row(
        self, pid: int, tid: int, worker_id: int | None = None, source_id: int = 0
    ) -> WorkerRow:
        return WorkerRow(
            pid=pid,
            worker_id=worker_id,
            source_id=source_id,
            fetch_s=self._fetch_s(pid),
            mix=self._threads.mix(pid, tid),
            place=self._threads.place(pid, tid),
        )

    def _fetch_s(self, pid: int) -> float | None:
        fetches = self._fetches.get(pid, deque())
        while fetches and fetches[0][0] < self._growth.now_ns - WINDOW_NS:
            fetches.popleft()
        return sum(dur_ns for _, dur_ns in fetches) / len(fetches) / 1e9 if fetches else None

    def _is_there(self, worker: WorkerRow) -> bool:
        """A worker that has ended is shown as long as it did something in the last seconds."""
        return self._alive.get(worker.pid) is True or bool(worker.mix) or worker.fetch_s is not None

    def _hidden_waits(self) -> list[Blindspot]:
        return [
            Blindspot(
                what=f"how long process {trainer.pid} waits for input",
                why="another thread takes the batches from the loader",
                forbids="where its time goes",
            )
            for trainer in self._trainers.values()
            if trainer.hides_waiting
        ]


def join_snapshots(hosts: list[Snapshot]) -> Snapshot:
    """One snapshot of a run over several hosts: all ranks, under the first host's own line."""
    alive = [host for host in hosts if host.state in {"running", "elsewhere"}]
    return msgspec.structs.replace(
        hosts[0],
        state=(alive or hosts)[0].state,
        ranks=[row for host in hosts for row in host.ranks],
        blindspots=list(dict.fromkeys(spot for host in hosts for spot in host.blindspots)),
    )
