"""Who was seen at work beside the training thread: threads of its process, or processes of the job.

A thread whose stack ends at a queue or a lock of Python's library has nothing to do; one that the
kernel has at a lock in the midst of its own code waits for the interpreter. Of a process the thread
counts that works most: Ray runs tasks in others than the main one. Processes that serve a library,
or only keep time, are none of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.wire import Phase
from fuelline.signals.recorded.fetching.crews import Stages
from fuelline.signals.recorded.fetching.stack_samples import WAITING_FILE, find_stacks
from fuelline.timeline.events import learning_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.signals.recorded.fetching.stack_samples import Frame
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

    Stacks = list[tuple[list[Frame], int]]

_GIVES = re.compile(r"\.(get|put|acquire|wait|join|result)\(")
"""Where a thread of a crew has nothing to do, likewise."""
_TASKLESS = re.compile(r"/ray/_private/worker\.py$")
_SERVICE = re.compile(
    r"/ray/(autoscaler/|dashboard/|_private/(log_monitor|process_watcher|runtime_env/agent/))"
    r"|/multiprocessing/(resource_tracker|forkserver)\.py$"
)
"""Of a library that runs processes: what is in it prepares nothing."""
_KEEPS_TIME = 0.99
"""Of a thread's looks, asleep: it wakes up now and then to see whether there is anything to do."""
_AT_WORK = 0.1
"""Of the looks at a thread: who works for less is not what the loop waits for."""
_FEW_SAMPLES = 20
_IDLE_STATES = ("pipe", "lock", "other")
"""Of a process that waits for work, or for room to put it."""


@dataclass(frozen=True)
class Crew:
    """Threads of the trainer's process, or processes of the job, that were seen at work."""

    tids: tuple[int, ...]
    pids: tuple[int, ...]
    kind: str
    stacks: Stacks
    stages: Stages
    worker_tids: tuple[int, ...] = ()
    """Of the processes: the threads in which they work."""


def find_crew(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> Crew | None:
    """Whichever are at work more; None if nobody is."""
    texts = timeline.source_lines
    steps = max(1, segments.boundaries.len() - 1)
    threads, stacks = _threads_at_work(timeline, trainer, segments)
    processes, tids = _processes_at_work(timeline, trainer, segments)
    busy, others = sum(threads.values()), sum(processes.values())
    most = max(busy, others)
    if most <= 0:
        return None
    stages = Stages(busy=most, batch_s=most * segments.wall_ns / steps / 1e9, parallel=1)
    if busy >= others:
        mine = [pair for tid in threads for pair in stacks.get(tid, [])]
        working = [(frames, n) for frames, n in mine if not is_idle(frames, texts)]
        return Crew(tuple(sorted(threads)), (), "threads", working, _sized(stages, threads))
    pids = tuple(sorted(processes))
    found = find_stacks(timeline, segments, pids)
    working = [(frames, n) for frames, n in found if _is_working(frames, texts)]
    return Crew((), pids, "processes", working, _sized(stages, processes), tids)


def _sized(stages: Stages, members: Mapping[int, float]) -> Stages:
    return replace(stages, parallel=len(members))


def _threads_at_work(
    timeline: Timeline, trainer: Trainer, segments: StepSegments
) -> tuple[dict[int, float], dict[int, Stacks]]:
    """Share of the time that each other thread of the process worked, and its stacks.

    By stack samples, which show what waits for the interpreter as well; by thread states, of the
    time in which the loop waited, where those are too few. Not the threads of a library, which work
    while the loop computes.
    """
    texts = timeline.source_lines
    by_state = _shares_at_work(
        look_at_threads(timeline, segments).filter(
            (pl.col("pid") == trainer.pid)
            & (pl.col("tid") != trainer.tid)
            & (pl.col("phase") == Phase.WAIT)
        )
    )
    rows = timeline.table("stacks").filter(
        (pl.col("pid") == trainer.pid)
        & (pl.col("until_ns") > segments.start_ns)
        & (pl.col("from_ns") < segments.end_ns)
    )
    taken = int(rows.filter(pl.col("tid") == trainer.tid)["count"].sum())
    tids = rows.filter(~pl.col("tid").is_in([trainer.tid, 0]))["tid"].unique()
    if taken < _FEW_SAMPLES or not tids.len():
        return by_state, {}
    stacks = {tid: list(find_stacks(timeline, segments, (trainer.pid,), tid=tid)) for tid in tids}
    working = {
        tid: min(1.0, sum(n for frames, n in found if not is_idle(frames, texts)) / taken)
        for tid, found in stacks.items()
    }
    return {tid: share for tid, share in working.items() if share >= _AT_WORK}, stacks


def _processes_at_work(
    timeline: Timeline, trainer: Trainer, segments: StepSegments
) -> tuple[dict[int, float], tuple[int, ...]]:
    """The same of processes that do not train themselves, by the busiest thread of each.

    Also which threads these are. What keeps time or serves a library is none of them: its stacks
    show no other work, or it has none and does nothing but sleep.
    """
    texts = timeline.source_lines
    steppers = learning_events(timeline, pl.lit(value=True))["pid"].unique()
    looks = look_at_threads(timeline, segments).filter(
        ~pl.col("pid").is_in(steppers.implode()) & (pl.col("pid") != trainer.pid)
    )
    owners = dict(looks.select("tid", "pid").unique().iter_rows())
    busiest: dict[int, tuple[float, int]] = {}
    for tid, share in _shares_at_work(looks).items():
        busiest[owners[tid]] = max(busiest.get(owners[tid], (0.0, 0)), (share, tid))
    sleepers = {tid for tid, asleep in _shares_asleep(looks).items() if asleep > _KEEPS_TIME}
    found: dict[int, tuple[float, int]] = {}
    for pid, (share, tid) in busiest.items():
        stacks = list(find_stacks(timeline, segments, (pid,)))
        seen = any(_is_working(frames, texts) for frames, _ in stacks)
        if seen or (not stacks and tid not in sleepers):
            found[pid] = share, tid
    return {pid: share for pid, (share, _) in found.items()}, tuple(
        tid for _, tid in found.values()
    )


def _is_working(frames: list[Frame], texts: Mapping[str, str]) -> bool:
    """In neither a wait nor a library's own service, as of Ray or of multiprocessing."""
    return not is_idle(frames, texts) and not any(_SERVICE.search(each.file) for each in frames)


def look_at_threads(timeline: Timeline, segments: StepSegments) -> pl.DataFrame:
    """Thread states within the window."""
    return timeline.table("states").filter(
        pl.col("window_ns").is_between(segments.start_ns, segments.end_ns)
    )


def _shares_asleep(looks: pl.DataFrame) -> dict[int, float]:
    asleep = pl.col("count").filter(pl.col("state") == "sleep").sum()
    return dict(looks.group_by("tid").agg(asleep / pl.col("count").sum()).iter_rows())


def _shares_at_work(looks: pl.DataFrame) -> dict[int, float]:
    """Of the looks at a thread: neither idle nor at a lock."""
    counts = (
        looks.group_by("tid")
        .agg(
            seen=pl.col("count").sum(),
            busy=pl.col("count").filter(~pl.col("state").is_in(_IDLE_STATES)).sum(),
        )
        .filter(pl.col("seen") >= _FEW_SAMPLES)
    )
    shares = {tid: busy / seen for tid, seen, busy in counts.iter_rows()}
    return {tid: share for tid, share in shares.items() if share >= _AT_WORK}


def is_waiting(frames: list[Frame]) -> bool:
    """In a function of Python's library that waits for another thread or process."""
    return WAITING_FILE.search(frames[-1].file) is not None


def is_idle(frames: list[Frame], texts: Mapping[str, str]) -> bool:
    """The same, or in a function in C that does, as where a worker of Ray waits for a task."""
    if is_waiting(frames) or _TASKLESS.search(frames[-1].file):
        return True
    return _GIVES.search(texts.get(frames[-1].place, "")) is not None
