"""Timelines from short stories: what a thread did, one thing after another, in milliseconds.

    loop = Lane()
    loop.batch(30, samples=32)      # 30 ms in next()
    loop.gap(10)                    # 10 ms that no hook saw: the forward pass
    loop.backward(20).optimizer(5)
    timeline = make_timeline(loop)

A Lane is one thread; several lanes make one Timeline. Everything else of a recording (thread
states, stacks, counters) is given as plain rows in the order of the table's columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from fuelline.schema.run.recording import RunFacts
from fuelline.schema.wire import Flag, Kind
from fuelline.signals.recorded.measure import measure
from fuelline.timeline import Timeline
from fuelline.timeline.segments import StepSegments, cut_segments
from fuelline.timeline.tables import TABLES
from fuelline.timeline.trainer import Trainer, find_trainers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuelline.schema.diagnosis.facts import Facts

MS = 1_000_000
START_NS = 1_000_000_000_000
"""Runs start at this moment of the clock, which is never near 0 on a real machine."""
TRAINER = 100
RUN = RunFacts(
    run_id="story",
    command=["python", "train.py"],
    host="here",
    started_wall_ns=1_750_000_000_000_000_000,
    started_ns=START_NS,
)


class Lane:
    """One thread's events. Each call appends one that begins where the last one ended."""

    def __init__(self, pid: int = TRAINER, tid: int | None = None, start_ms: float = 0) -> None:
        self.pid = pid
        self.tid = pid if tid is None else tid
        self.now_ns = START_NS + int(start_ms * MS)
        self.rows: list[tuple[int, ...]] = []
        self._position: dict[int, int] = {}

    def gap(self, ms: float) -> Lane:
        """Time that no hook saw."""
        self.now_ns += int(ms * MS)
        return self

    def add(self, kind: Kind, ms: float, *fields: int, flags: int = 0) -> Lane:
        """Any event, with its fields a, b, c, d, e."""
        dur_ns = int(ms * MS)
        self.put(kind, self.now_ns, dur_ns, *fields, flags=flags)
        self.now_ns += dur_ns
        return self

    def put(self, kind: Kind, start_ns: int, dur_ns: int, *fields: int, flags: int = 0) -> Lane:
        """An event at a moment of its own; the clock stays."""
        padded = (*fields, *(0,) * (5 - len(fields)))
        self.rows.append((self.pid, self.tid, int(kind), int(flags), start_ns, dur_ns, *padded))
        return self

    def batch(
        self,
        ms: float,
        *,
        loader: int = 1,
        samples: int = 32,
        cpu_ns: int = 0,
        grad: bool = True,
    ) -> Lane:
        """A batch arrived after `ms` in next()."""
        position = self._position.get(loader, 0)
        self._position[loader] = position + 1
        flags = Flag.TRAINING if grad else Flag(0)
        return self.add(Kind.WAIT, ms, loader, samples, 1000, cpu_ns, position, flags=flags)

    def epoch_end(self, ms: float, *, loader: int = 1, grad: bool = True) -> Lane:
        """next() raised StopIteration."""
        position = self._position.pop(loader, 0)
        flags = Flag.END | Flag.TRAINING if grad else Flag.END
        return self.add(Kind.WAIT, ms, loader, 0, 0, 0, position, flags=flags)

    def iterator(self, ms: float, *, loader: int = 1) -> Lane:
        """iter(loader) built its workers."""
        self._position[loader] = 0
        return self.add(Kind.SOURCE_START, ms, loader)

    def backward(self, ms: float, *, nodes: int = 0, cpu_ns: int = 0) -> Lane:
        """A backward pass."""
        return self.add(Kind.BACKWARD, ms, nodes, cpu_ns)

    def optimizer(self, ms: float, *, which: int = 1) -> Lane:
        """An optimizer step."""
        return self.add(Kind.STEP, ms, which)

    def step(
        self, wait: float = 10, forward: float = 10, backward: float = 20, opt: float = 5
    ) -> Lane:
        """A plain training step."""
        return self.batch(wait).gap(forward).backward(backward).optimizer(opt)

    def worker(self, pid: int, *, loader: int = 1, number: int = 0) -> Lane:
        """The trainer notes that a worker belongs to a loader."""
        return self.add(Kind.WORKER, 0, loader, number, pid)

    def fetch(
        self,
        ms: float,
        *,
        samples: int = 32,
        clocks_ms: tuple[float, float, float] = (0, 0, 0),
        io: tuple[int, int, int, int, int] | None = None,
    ) -> Lane:
        """A fetch.

        `clocks_ms` are CPU, run queue and collate; `io` is bytes read, bytes from disk, read calls,
        major faults, system CPU ns.
        """
        start_ns = self.now_ns
        clocks_ns = (int(part * MS) for part in clocks_ms)
        self.add(Kind.FETCH, ms, 0, samples, *clocks_ns)
        if io is not None:
            self.put(Kind.FETCH_IO, start_ns, int(ms * MS), *io)
        return self


def table(name: str, rows: Iterable[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows in the order of the table's columns."""
    return pl.DataFrame(list(rows), schema=dict(TABLES[name]), orient="row")


def make_timeline(
    *lanes: Lane, run: RunFacts = RUN, facts: dict[str, Any] | None = None, **tables: Any
) -> Timeline:
    """A checked Timeline: lanes are its events, `tables` are lists of rows by table name."""
    frames = {name: table(name, rows) for name, rows in tables.items()}
    frames["events"] = table("events", (row for lane in lanes for row in lane.rows))
    timeline = Timeline(run=run, tables=frames, **(facts or {}))
    timeline.check()
    return timeline


def first_trainer(timeline: Timeline) -> Trainer | None:
    """The one that is judged if nothing speaks against it."""
    return next(iter(find_trainers(timeline)), None)


def judge(timeline: Timeline) -> tuple[Trainer, StepSegments]:
    """The trainer and its segments, which the story must have."""
    trainer = first_trainer(timeline)
    assert trainer is not None
    segments = cut_segments(timeline, trainer)
    assert segments is not None
    return trainer, segments


def facts_of(timeline: Timeline) -> Facts:
    """Everything that is measured; each Reading's interval holds its value."""
    facts = measure(timeline, *judge(timeline))
    for room in (facts.input, facts.storage, facts.cores, facts.compute):
        for signal in msgspec.structs.astuple(room):
            if hasattr(signal, "check"):
                signal.check()
    return facts


def spent_ms(segments: StepSegments) -> dict[str, float]:
    """Milliseconds of the window by part."""
    length = (pl.col("end_ns") - pl.col("start_ns")).sum() / MS
    return dict(segments.pieces.group_by("part").agg(length.alias("ms")).iter_rows())
