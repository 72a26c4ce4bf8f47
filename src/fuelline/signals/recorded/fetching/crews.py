"""Sources whose batches are prepared by threads of the trainer's own process, such as tf.data.

A pool of threads has no fetches with a beginning and an end. What stands for them: what the
framework counts of its stages (how long calls of each took, all together), what the threads were
seen in, and their clocks. Idle threads look like those at a lock; the stages' own count tells how
many calls were in progress, so what is at a lock beyond the idle ones waits inside of a call, as
for Python's interpreter lock.

The pool is larger than what works at once where a stage runs one call at a time: only as many
threads count as there can be calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.readings import value_of
from fuelline.signals.recorded.counters import process_growth
from fuelline.signals.recorded.fetching.fetches import (
    STORAGE_STATES,
    CrewUse,
    Fetches,
    fetch_table,
    share_of,
)
from fuelline.timeline import events

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import CoreFacts, HotLine
    from fuelline.schema.run.recording import LoaderFacts
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_RUNS_CODE = re.compile(r"Map|Interleave|Filter|Generator|Reduce|Scan|TakeWhile|Reader|TFRecord")
"""Stages that run functions or read; the others only pass elements on."""
_BLOCKED_FRAC = 0.2
"""Of a thread's looks: one that is in a file so often takes part, whoever started it."""
_ALIVE_FRAC = 1e-4
"""Of a core: a thread that sleeps and uses less does nothing between its sleeps."""
_CERTAINLY_INSIDE = 0.2
"""Of the calls in progress: fewer that wait at a lock are chance."""
_FEW_LOOKS = 20
"""As for every decomposition by samples."""
_MOSTLY = 0.8
_FREE = 0.25
"""Of a core."""
WITHIN_STEPS = ("keras.PyDataset",)
"""Sources whose batches are only waited for within the steps of a framework."""
LOOKS_PER_S = 20
"""Of the observer at one thread: what a thread's second is worth in looks."""


@dataclass(frozen=True)
class Stages:
    """What the framework counted inside the window, or stack samples show."""

    busy: float
    """Calls in progress, on average."""
    batch_s: float | None
    """Time that calls took for one batch, all together."""
    parallel: int
    """Calls that may run at once, where code runs: of the stage that is nearest to its most."""
    busiest: float = 0.0
    """Calls in progress in that stage; 0 where stages are not counted one by one."""


def collect_crew(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    loader: LoaderFacts | None,
    *,
    lines: list[HotLine],
    cores: CoreFacts,
    stages: Stages | None = None,
) -> Fetches:
    """What the threads did, in the shape of fetches; `stages` unless the framework counted them."""
    clocks = _clock_shares(timeline, trainer, segments)
    looks = _of_crew(_looks(timeline, trainer, segments), clocks, trainer.crew_tids)
    if not share_of(lines, "sleep"):
        # A pool computes, reads or is at a lock: where no Python of the job's sleeps in it, it
        # sleeps in a read that is delayed.
        looks = looks.with_columns(pl.col("state").replace("sleep", "read"))
    mine = clocks.filter(pl.col("tid").is_in(looks["tid"].unique().implode()))
    is_counted = stages is None
    stages = stages or _measure_stages(timeline, trainer, segments, loader)
    rows = fetch_table(timeline, trainer).clear()
    if looks["count"].sum() < _FEW_LOOKS:
        pool = clocks.filter(pl.col("tid").is_in(list(trainer.crew_tids)))
        strangers = clocks.filter(~pl.col("tid").is_in(list(trainer.crew_tids)))
        cpu = max(float(pool["cpu"].sum()), _compute_unseen(timeline, segments, strangers))
        if stages.busy > 0 and cpu + float(pool["queued"].sum()) >= _MOSTLY * stages.busy:
            return _as_computing(stages, cpu, segments, rows, looks.clear())
    cpu, queued = float(mine["cpu"].sum()), float(mine["queued"].sum())
    windows = max(1, looks["window_ns"].n_unique())
    blocked = looks.filter(~pl.col("state").is_in(["running", "lock", "pipe"]))
    threads = {
        state: float(looks.filter(pl.col("state") == state)["weight"].sum()) / windows
        for state in ("running", "lock")
    }
    running = cpu + queued if mine.height else threads["running"]
    busy = running + float(blocked["weight"].sum()) / windows
    locked = min(max(0.0, stages.busy - busy), threads["lock"])
    if locked < _CERTAINLY_INSIDE * stages.busy:
        locked = 0.0
    if lines and _has_room(cores):
        turns = min(queued, max(0.0, stages.busy - 1 - locked))
        queued, running = queued - turns, running - turns
        locked, busy = locked + turns, busy - turns
    # Threads of the pool compute steps, too: where stages are counted, that is who prepares.
    room = max(stages.parallel, round(stages.busy if stages.busiest else busy + locked))
    made = {"running": running, "lock": locked, "pipe": max(0.0, room - busy - locked)}
    return Fetches(
        rows=rows,
        states=_count(blocked, {state: each * windows for state, each in made.items()}),
        threads=room,
        looks=int(looks["count"].sum()),
        cpu_part=cpu / (cpu + queued) if cpu + queued > 0 else None,
        batch_s=stages.batch_s,
        crew=_share_out(stages.busiest, cpu, queued, busy - running + locked)
        if is_counted and mine.height
        else None,
    )


def _share_out(busiest: float, cpu: float, queued: float, blocked: float) -> CrewUse:
    """What the calls in progress were in, as the threads were; these where none are counted."""
    seen = cpu + queued + blocked
    scale = busiest / seen if busiest and seen else 1.0
    return CrewUse(cpu * scale, queued * scale, blocked * scale)


def _compute_unseen(timeline: Timeline, segments: StepSegments, strangers: pl.DataFrame) -> float:
    """Cores that the process used and no other thread of it did: the pool's; 0 if not known."""
    whole_ns = process_growth(timeline, segments, "cpu_ns")
    if whole_ns is None or timeline.table("processes")["pid"].n_unique() != 1:
        return 0.0
    return max(0.0, whole_ns / segments.wall_ns - float(strangers["cpu"].sum()))


def _as_computing(
    stages: Stages, cpu: float, segments: StepSegments, rows: pl.DataFrame, looks: pl.DataFrame
) -> Fetches:
    """Pools that come and go between two looks, as with short epochs, but are known to compute.

    What little is left of their calls they waited for a core.
    """
    seconds = segments.wall_ns / 1e9
    made = {"running": stages.busy, "pipe": max(0.0, stages.parallel - stages.busy)}
    return Fetches(
        rows=rows,
        states=_count(looks, {state: each * seconds for state, each in made.items()}),
        threads=max(stages.parallel, round(stages.busy)),
        looks=round(seconds * LOOKS_PER_S),
        cpu_part=min(1.0, cpu / stages.busy),
        batch_s=stages.batch_s,
        crew=CrewUse(cpu, max(0.0, stages.busy - cpu), 0.0),
    )


def _has_room(cores: CoreFacts) -> bool:
    """Whether a core was free that the job may use.

    Threads that run Python ask for its lock again every few milliseconds, so that they mostly queue
    for a core rather than sleep. Where one is free, it is the lock that they wait for.
    """
    allowed, used, idle = (value_of(each) for each in (cores.allowed, cores.used, cores.idle))
    if allowed is None or used is None or idle is None:
        return False
    return min(allowed - used, idle) >= _FREE


def _count(blocked: pl.DataFrame, made: dict[str, float]) -> pl.DataFrame:
    """Weights as whole numbers: blocked threads with their places, the other states without."""
    seen = blocked.select("state", "place", "syscall", "weight")
    rest = pl.DataFrame(
        {
            "state": list(made),
            "place": [0] * len(made),
            "syscall": [""] * len(made),
            "weight": list(made.values()),
        },
        schema=seen.schema,
    )
    count = (pl.col("weight") * LOOKS_PER_S).round().cast(pl.Int64)
    return pl.concat([seen, rest]).select("state", "place", "syscall", count=count)


def _looks(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> pl.DataFrame:
    """Looks at the process's other threads; a thread's looks of a window weigh 1 together.

    Threads are not looked at equally often, so that only shares of one thread can be compared.
    """
    looks = (
        timeline.table("states")
        .filter(
            (pl.col("pid") == trainer.pid)
            & (pl.col("tid") != trainer.tid)
            & (pl.col("window_ns") >= segments.start_ns)
            & (pl.col("window_ns") + 10**9 <= max(segments.end_ns, segments.start_ns + 2 * 10**9))
        )
        .with_columns(weight=pl.col("count") / pl.col("count").sum().over("tid", "window_ns"))
    )
    return looks.with_columns(weight=pl.col("weight") * _find_alive(timeline, trainer, looks))


def _find_alive(timeline: Timeline, trainer: Trainer, looks: pl.DataFrame) -> pl.Expr:
    """The part of a window that a thread of a pool lives, where a new pool comes with each epoch.

    Of so many members that were looked at in a window, no more than one pool's were there at once.
    """
    started = events.crews(timeline).filter(pl.col("pid") == trainer.pid)
    started = started.filter(pl.col("cpu_ns") <= 0).sort("start_ns")
    gap = pl.col("start_ns").diff().fill_null(0) > 10**6
    pools = started.group_by(gap.cum_sum()).len()["len"] if started.height else None
    size = 1.0 if pools is None else float(pools.median() or 1.0)  # type: ignore[arg-type]
    is_member = pl.col("tid").is_in(looks["tid"].filter(looks["tid"].is_in(trainer.crew_tids)))
    members = pl.col("tid").filter(is_member).n_unique().over("window_ns")
    return pl.when(is_member & (members > 2 * size)).then(2 * size / members).otherwise(1.0)


def _clock_shares(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> pl.DataFrame:
    """tid, cpu, queued: cores that each thread used and waited for, on average."""
    clocks = timeline.table("clocks").filter(
        (pl.col("pid") == trainer.pid)
        & pl.col("at_ns").is_between(segments.start_ns, segments.end_ns)
    )
    first_ns, last_ns = clocks.select(pl.col("at_ns").min(), last=pl.col("at_ns").max()).row(0)
    wall_ns = max(1, (last_ns or 0) - (first_ns or 0))
    own = _own_clocks(timeline, trainer).filter(
        pl.col("at_ns").is_between(first_ns or 0, last_ns or 0)
    )
    clocks = pl.concat([clocks.select(own.columns), own])
    grown = pl.col("oncpu_ns", "runq_ns")
    return (
        clocks.group_by("tid")
        .agg((grown.max() - grown.min()) / wall_ns)
        .rename({"oncpu_ns": "cpu", "runq_ns": "queued"})
    )


def _own_clocks(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """The clocks of the crew as the job itself read them, from 0 when a thread was started.

    Pools that live for an epoch of a second are gone before the observer has read them twice.
    """
    rows = events.crews(timeline).filter(pl.col("pid") == trainer.pid)
    return rows.select(
        at_ns="start_ns",
        tid=pl.col("member").cast(pl.Int32),
        oncpu_ns=pl.col("cpu_ns").clip(0, None),
        runq_ns=pl.col("queued_ns").clip(0, None),
    )


def _of_crew(looks: pl.DataFrame, clocks: pl.DataFrame, tids: tuple[int, ...]) -> pl.DataFrame:
    """Looks at those that take part: the pool, and who else reads for it.

    Stages start threads of their own with the first batch, and some of them read. A thread that
    only sleeps, and computes nothing in between, keeps time for others.
    """
    asleep = pl.col("weight").filter(pl.col("state") == "sleep").sum()
    reading = pl.col("weight").filter(pl.col("state").is_in([*STORAGE_STATES, "metadata"])).sum()
    threads = (
        looks.group_by("tid")
        .agg(asleep=asleep / pl.col("weight").sum(), reading=reading / pl.col("weight").sum())
        .join(clocks, on="tid", how="left")
        .with_columns(pl.col("cpu").fill_null(0.0))
    )
    is_clock = (pl.col("asleep") > 0.99) & (pl.col("cpu") < _ALIVE_FRAC)
    takes_part = pl.col("tid").is_in(list(tids)) | (pl.col("reading") >= _BLOCKED_FRAC)
    mine = threads.filter(takes_part & ~is_clock)["tid"]
    return looks.filter(pl.col("tid").is_in(mine.implode()))


def _measure_stages(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, loader: LoaderFacts | None
) -> Stages:
    names = {node.id: node.name for node in (loader.nodes if loader is not None else [])}
    working = [place for place, name in names.items() if _RUNS_CODE.search(name)]
    within = pl.col("start_ns").is_between(segments.start_ns, segments.end_ns)
    rows = events.nodes(timeline, (pl.col("pid") == trainer.pid) & within).filter(
        pl.col("source_id").is_in(trainer.train_sources)
    )
    if not rows.height:
        return Stages(0.0, None, 1)
    first_ns = int(rows["start_ns"].min())  # type: ignore[arg-type]
    wall_ns = int(rows["start_ns"].max()) - first_ns  # type: ignore[arg-type]
    growth = (
        rows.sort("start_ns")
        .group_by("node", maintain_order=True)
        .agg(
            pl.col("busy_ns", "elements").last()
            - pl.when(pl.col("start_ns").first() > first_ns)
            .then(0)
            .otherwise(pl.col("busy_ns", "elements").first()),
            parallel=pl.col("flags").last(),
        )
        .with_columns(place=pl.col("node").cast(pl.Int64) & 0xFF)
    )
    code = growth.filter(pl.col("place").is_in(working))
    batches = int(growth.filter(pl.col("place") == 0)["elements"].sum())
    busy_ns = float(code["busy_ns"].sum())
    parallel = pl.col("parallel").max().clip(1, None)
    stages = code.group_by("place").agg(pl.col("busy_ns").sum(), parallel)
    stages = stages.sort(pl.col("busy_ns") / pl.col("parallel"), descending=True)
    return Stages(
        busy=busy_ns / wall_ns if wall_ns > 0 else 0.0,
        batch_s=busy_ns / batches / 1e9 if batches > 0 else None,
        parallel=int(stages["parallel"][0]) if stages.height else 1,
        busiest=float(stages["busy_ns"][0]) / wall_ns if stages.height and wall_ns > 0 else 0.0,
    )
