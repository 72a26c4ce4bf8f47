"""The fetches of training batches and what the threads that made them were doing meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.student import find_t
from fuelline.schema.wire import Phase
from fuelline.signals.recorded.budget import training_batches
from fuelline.signals.statistics import slope, total
from fuelline.timeline import events
from fuelline.timeline.intervals import covered_ns, mean_overlap, merge, total_ns

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import HotLine
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

STORAGE_STATES = ("read", "fault", "socket")
SERVICE = "service"
"""At a socket, in a line that reads no file."""
BLOCKED_STATES = ("sleep", SERVICE, "other")
"""Blocked, and neither reading nor at a lock."""
BUSY_STATES = (*STORAGE_STATES, *BLOCKED_STATES, "running", "metadata", "lock", "write")
"""All but `pipe`, in which a worker waits for something to do."""
_MOSTLY_LOCKED = 0.5
_CERTAINLY_INSIDE = 0.2
"""Of all looks: fewer than this that the clocks do not confirm as idle are chance."""
_ENOUGH_FETCHES = 20
_ENOUGH_SPREAD = 0.01
"""Standard deviation of ln(fetches in progress): below it the number never really changed. The few
fetches at the beginning and end of an epoch are enough to be seen in it; what they prove is a
matter of the slope's error."""
_SURE_ERROR = 0.5
"""Of the elasticity: with a larger one 0 and 1 are less than two errors apart. What is as far below
0, where no queue can bring it, is moved by something that could as well hide one."""


@dataclass(frozen=True)
class CrewUse:
    """What threads that prepare batches were in, on average over the window: so many at a time."""

    computing: float
    queued: float
    """Ready to run, without a core."""
    blocked: float
    """In a call that does not return; idle threads are in none."""


@dataclass(frozen=True)
class Fetches:
    """The fetches of training batches inside the window, and thread states meanwhile."""

    rows: pl.DataFrame
    """FETCH joined with FETCH_IO: pid, start_ns, dur_ns, samples, cpu_ns, runq_ns, collate_ns,
    read_bytes, disk_bytes, calls, faults, system_ns. -1 where the kernel refused."""
    states: pl.DataFrame
    """Samples of the fetching threads while the trainer waited."""
    threads: int
    """Fetching threads at a time: the workers, or the trainer itself."""
    looks: int
    """Samples of the fetching threads themselves: `states` may be those of their helpers."""
    is_inline: bool = False
    """The trainer fetches itself, whenever it waits."""
    cpu_part: float | None = None
    """Of the time that they were ready to run: on a core, by the threads' own clocks; None where
    the fetches' clocks tell."""
    batch_s: float | None = None
    """What a batch takes, as the framework counts it where `rows` cannot."""
    crew: CrewUse | None = None
    """Of threads without fetches of their own."""

    def in_progress(self) -> Signal:
        """How many fetches are under way while the trainer waits, on average."""
        if self.is_inline and self.rows.height and not self.looks:
            return total(1.0, "count", "the trainer fetches itself", self.rows.height)
        return self.at_a_time(*BUSY_STATES)

    def at_a_time(self, *states: str) -> Signal:
        """How many of the threads were in these states at once, on average.

        Not every thread is looked at in every round, so this is their share of all looks times
        their number.
        """
        looks = int(self.states["count"].sum())
        if not looks:
            return Missing(reason="no fetching thread was sampled while the trainer waited")
        hits = int(self.states.filter(pl.col("state").is_in(states))["count"].sum())
        return total(self.threads * hits / looks, "count", "states while waiting", looks)


def collect_fetches(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    lines: list[HotLine],
    *,
    is_within: bool = False,
) -> Fetches:
    """Pick out what concerns the training loader.

    A sleep inside a line that reads a file is a delayed read: some file systems and shims wait that
    way. Where the waits are within the framework's steps (`is_within`), no phase tells them.
    """
    phases = list(map(int, Phase)) if is_within else _wait_phases(trainer)
    states = timeline.table("states").filter(
        pl.col("phase").is_in(phases)
        & (pl.col("window_ns") >= segments.start_ns - 10**9)
        & (pl.col("window_ns") <= segments.end_ns)
    )
    waiting = states.filter((pl.col("pid") == trainer.pid) & (pl.col("tid") == trainer.reader_tid))
    rows = fetch_table(timeline, trainer).filter(
        (pl.col("start_ns") + pl.col("dur_ns")).is_between(segments.start_ns, segments.end_ns)
    )
    workers = _busy_workers(trainer, rows)
    crew = rows["tid"].unique() if trainer.crew_tids else rows["tid"].clear()
    if workers:
        tids = list(trainer.worker_tids) or workers
        fetching = states.filter(pl.col("pid").is_in(workers) & pl.col("tid").is_in(tids))
    elif crew.len():
        mine = (pl.col("pid") == trainer.pid) & pl.col("tid").is_in(crew.implode())
        fetching = states.filter(mine)
    else:
        fetching = waiting
    looks = int(fetching["count"].sum())
    threads = max(1, crew.len(), min(trainer.workers, len(workers)))
    fetching = _behind_locks(states, fetching)
    batches = training_batches(timeline, trainer).filter(
        pl.col("end_ns").is_between(segments.start_ns, segments.end_ns)
    )
    if not timeline.run.is_estimated:  # else fetches do not lie where they were
        fetching = _apart_from_idle(fetching, rows, batches, threads)
    if _sleeps_in_reads(lines):
        fetching = fetching.with_columns(pl.col("state").replace("sleep", "read"))
    if share_of(lines, "service") > share_of(lines, "read"):
        fetching = fetching.with_columns(pl.col("state").replace("socket", SERVICE))
    return Fetches(
        rows=rows,
        states=fetching,
        threads=threads,
        looks=looks,
        is_inline=not workers and not crew.len(),
    )


def _wait_phases(trainer: Trainer) -> list[int]:
    if trainer.reader_tid != trainer.tid:  # phases are the trainer's, who waits for its reader
        return [int(phase) for phase in Phase]
    phases = [Phase.WAIT] if trainer.step_kind == "train" else [Phase.WAIT, Phase.EVAL_WAIT]
    return [int(phase) for phase in phases]


def _busy_workers(trainer: Trainer, rows: pl.DataFrame) -> list[int]:
    """Workers that fetched something, else all: `run --fix` has some in reserve, which sleep."""
    busy = rows["pid"].unique().to_list()
    return [pid for pid in trainer.worker_pids if pid in busy] or list(trainer.worker_pids)


def _behind_locks(states: pl.DataFrame, fetching: pl.DataFrame) -> pl.DataFrame:
    """A fetching thread that waits for a lock has helpers: what those do is what it waits for.

    A lock of a file is held by another process: there is nothing behind it in this one.
    """
    busy = int(fetching.filter(pl.col("state") != "pipe")["count"].sum())
    at_lock = (pl.col("state") == "lock") & (pl.col("place") == 0)
    if int(fetching.filter(at_lock)["count"].sum()) <= _MOSTLY_LOCKED * busy:
        return fetching
    helpers = states.filter(
        pl.col("pid").is_in(fetching["pid"].unique().implode())
        & ~pl.col("state").is_in(["lock", "pipe"])
        & ~pl.col("tid").is_in(fetching["tid"].unique().implode())
    )
    working = fetching.filter(~at_lock)
    return pl.concat([working, helpers]) if helpers.height else fetching


def _apart_from_idle(
    fetching: pl.DataFrame, rows: pl.DataFrame, batches: pl.DataFrame, threads: int
) -> pl.DataFrame:
    """A thread at a pipe has nothing to do, or is inside a fetch and waits for another process.

    The fetches' own clocks say for how long there was none in progress: looks at pipes beyond that
    were inside of one.
    """
    at_pipe = pl.col("state") == "pipe"
    looks = int(fetching["count"].sum())
    pipes = int(fetching.filter(at_pipe)["count"].sum())
    waits = merge(batches.select("start_ns", "end_ns"))
    room_ns = threads * total_ns(waits)
    if not pipes or not room_ns or not rows.height:
        return fetching
    spans = rows.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    idle = 1 - min(1.0, float(covered_ns(spans, waits).sum()) / room_ns)
    inside = pipes - idle * looks
    if inside < _CERTAINLY_INSIDE * looks:
        return fetching
    scaled = fetching.filter(at_pipe).with_columns(
        state=pl.lit("other"),
        count=(pl.col("count") * (inside / pipes)).round().cast(fetching.schema["count"]),
    )
    left = fetching.with_columns(
        count=pl.when(at_pipe)
        .then((pl.col("count") * (1 - inside / pipes)).round())
        .otherwise(pl.col("count"))
        .cast(fetching.schema["count"])
    )
    return pl.concat([left, scaled.select(left.columns)])


def measure_growth(rows: pl.DataFrame, per: str) -> Signal:
    """Elasticity of a fetch's blocked time per unit of work against fetches in progress.

    Epochs begin and end with fewer fetches in progress, and fetches of other lengths leave gaps:
    that is the experiment, and it costs nothing. 0: a request takes as long whoever else asks. 1:
    it takes its turn.
    """
    known = rows.filter((pl.col(per) > 0) & (pl.col("dur_ns") > 0))
    blocked = (known["dur_ns"] - known["cpu_ns"] - known["runq_ns"].clip(0, None)).clip(1, None)
    return fit_growth(known, blocked / known[per], _SURE_ERROR)


def fit_growth(
    rows: pl.DataFrame, cost: pl.Series, sure_error: float, most: float | None = None
) -> Signal:
    """Elasticity of a cost against the fetches in progress, of which at most `most` count."""
    if rows.height < _ENOUGH_FETCHES:
        return Missing(reason=f"only {rows.height} fetches show it")
    overlap = mean_overlap(rows["start_ns"], rows["start_ns"] + rows["dur_ns"])
    return fit_elasticity(overlap.clip(None, most), cost, sure_error)


def fit_elasticity(crowd: pl.Series, cost: pl.Series, sure_error: float) -> Signal:
    """How a cost grows with those who are there at once: 0 not at all, 1 in proportion."""
    many = crowd.log(math.e)
    if float(many.std() or 0.0) < _ENOUGH_SPREAD:  # type: ignore[arg-type]
        return Missing(reason="the number of those in progress never changed")
    fitted = slope(many, cost.log(math.e))
    if fitted is None or fitted[1] > sure_error:
        return Missing(reason="fetch times scatter too much to see an effect of their number")
    value, error = fitted
    half = find_t(cost.len() - 2) * error
    if value < -_SURE_ERROR and value + half < 0:
        return Missing(reason="fetches took longer the fewer there were: something else decided")
    return Reading(
        value=value,
        unit="frac",
        low=value - half,
        high=value + half,
        level=95,
        count=cost.len(),
        origin="fetch elasticity",
    )


def _sleeps_in_reads(lines: list[HotLine]) -> bool:
    """Sleeping threads are at lines that read files, not at lines that call sleep()."""
    return share_of(lines, "read", "decode") > share_of(lines, "sleep")


def share_of(lines: list[HotLine], *stages: str) -> float:
    """Of the stack samples of fetching: in lines of these stages."""
    return sum(line.share for line in lines if line.stage in stages)


def fetch_table(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """All fetches of training batches of the run, with their I/O."""
    pids = trainer.worker_pids or (trainer.pid,)
    theirs = pl.col("pid").is_in(pids) & events.has_succeeded()
    if trainer.crew_tids:
        theirs &= pl.col("tid").is_in(list(trainer.crew_tids))
    fetches, reads = events.fetches(timeline, theirs), events.fetch_reads(timeline, theirs)
    if not (trainer.worker_pids or trainer.crew_tids):
        batches = training_batches(timeline, trainer)
        fetches, reads = _inside(fetches, batches), _inside(reads, batches)
    own = ("worker", "flags", "end_ns")
    read = ("rchar_bytes", "disk_read_bytes", "read_calls", "major_faults", "system_ns")
    keys = ["pid", "tid", "start_ns"]
    return fetches.drop(own).join(reads.select(*keys, *read), on=keys, how="left").sort("start_ns")


def _inside(rows: pl.DataFrame, batches: pl.DataFrame) -> pl.DataFrame:
    """Events of one process that begin while its trainer takes a batch: not those of validation."""
    taken = batches.select("start_ns", taken_ns="end_ns").sort("start_ns")
    return (
        rows.sort("start_ns")
        .join_asof(taken, on="start_ns", strategy="backward")
        .filter(pl.col("start_ns") <= pl.col("taken_ns"))
        .drop("taken_ns")
    )
