"""Who feeds a loop whose source of batches has no hooks of its own, and how long the loop waits.

What the training thread waits on between two steps is the source: a queue, a future, a pool, timed
by hooks of Python's own library (`record/hooks/waits.py`); or its own Python code in a generator,
by stack samples alone. The line of the loop tells that from the rest of the step:

    main (train.py:30) > batches (data.py:12) > read (data.py:5)    `for batch in batches()`
    main (train.py:31) > _call_impl (torch/nn/modules/module.py)    the model
    main (train.py:33) > backward (torch/_tensor.py)                all stacks are compared with it

Who feeds a queue is its crew: threads of the same process or processes of the job, whichever were
seen at work (`found_crew.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.recording import FED_BY_UNKNOWN, PYTHON_SOURCE, LoaderFacts
from fuelline.signals.recorded.counters import thread_growth
from fuelline.signals.recorded.fetching.fetches import (
    STORAGE_STATES,
    Fetches,
    fetch_table,
    share_of,
)
from fuelline.signals.recorded.fetching.found_crew import (
    find_crew,
    is_idle,
    is_waiting,
    look_at_threads,
)
from fuelline.signals.recorded.fetching.hotspots import find_spot
from fuelline.signals.recorded.fetching.stack_samples import (
    comes_before,
    find_backward,
    find_loop_stage,
    find_most_common,
    find_stacks,
    find_told,
    is_compiled,
    rank_lines,
)
from fuelline.signals.statistics import proportion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fuelline.schema.diagnosis.facts import HotLine
    from fuelline.schema.readings import Signal
    from fuelline.signals.recorded.fetching.crews import Stages
    from fuelline.signals.recorded.fetching.stack_samples import Frame, SampleKey
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

    Stacks = list[tuple[list[Frame], int]]

_ASKS = re.compile(r"^(async )?for\b|\ba?next\(|\.__a?next__\(")
"""A line of the loop that asks an iterator for its next element."""
_TAKES = re.compile(r"\.(get|get_nowait|recv\w*|result|acquire|wait|join|read\w*|pop|popleft)\(")
"""One that takes a batch from elsewhere by a function in C, which has no frame of its own."""
_HOOK = re.compile(r"/fuelline/record/hooks/hook\.py$")
_ASYNC = re.compile(r"/asyncio/")
_FEW_SAMPLES = 20
_SHORT_GAP = 0.1
"""Of the window: what is shorter needs no samples to be of little weight."""
_MOSTLY = 0.5
_WAITING = ("read", "decode", "service", "sleep")
"""Stages of a line that gets a batch from somewhere."""
_BETWEEN = ("forward", "loop", "sync")
"""Stages of the loop that have no event of their own."""


@dataclass(frozen=True)
class Feeders:
    """What stands in for the settings and the workers of a loader."""

    trainer: Trainer
    """With its crew: threads or processes that prepare batches; neither if it does so itself."""
    loader: LoaderFacts | None
    lines: list[HotLine] | None = None
    """Where that is done; None: as for any loader."""
    stages: Stages | None = None
    """How much of it at a time, where a crew was found."""
    wait: Signal | None = None
    """Of the window, beyond what hooks recorded: the loop's own code that makes batches."""
    inline: Fetches | None = None
    """Of the trainer itself, where it makes its batches."""
    asking: frozenset[str] = frozenset()
    """Lines of the loop that ask for a batch, and the one that calls a step which leaves no frames
    of its own: what is below them is no other code of the step."""


def find_feeders(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, loader: LoaderFacts | None
) -> Feeders:
    """Look for a source that has no hooks of its own; nothing changes where one has."""
    is_recorded = bool(trainer.train_sources)
    is_unknown = loader is not None and loader.framework in FED_BY_UNKNOWN
    if trainer.reader_tid != trainer.tid or (is_recorded and not is_unknown):
        return Feeders(trainer, loader)
    asked = _Asked.find(timeline, trainer, segments, is_recorded=is_recorded)
    if not is_recorded and asked.wait is None:
        return Feeders(trainer, loader, asking=asked.places)
    wait = asked.wait
    if asked.is_own and isinstance(wait, Reading) and wait.value > _input_frac(segments):
        lines = rank_spots(asked.below, timeline.source_lines)
        return Feeders(
            trainer,
            _describe(loader, asked, 0, None),
            lines=lines,
            wait=wait,
            inline=_fetch_inline(timeline, trainer, segments, wait.value, lines),
            asking=asked.places,
        )
    if asked.is_made_inside:
        lines = rank_spots(asked.inside, timeline.source_lines)
        facts = _describe(loader, asked, 0, None)
        return Feeders(trainer, facts, lines=lines, wait=wait, asking=asked.places)
    crew = find_crew(timeline, trainer, segments)
    if crew is None:
        return Feeders(trainer, _describe(loader, asked, 0, None), wait=wait, asking=asked.places)
    stacks, stages = crew.stacks, crew.stages
    feeding = replace(
        trainer,
        crew_tids=crew.tids,
        worker_pids=crew.pids,
        worker_tids=crew.worker_tids,
        workers=len(crew.pids),
    )
    return Feeders(
        feeding,
        _describe(loader, asked, len(crew.tids or crew.pids), crew.kind),
        lines=rank_spots(stacks, timeline.source_lines),
        stages=stages,
        wait=wait,
        asking=asked.places,
    )


@dataclass(frozen=True)
class _Asked:
    """Where the loop asks for a batch, as stack samples show it."""

    wait: Signal | None
    """Of the window, beyond what was recorded; None: no sample, or too few."""
    is_own: bool
    """Most of it is the thread's own work, not a wait for others."""
    places: frozenset[str]
    below: Stacks
    """What is below these lines."""
    inside: Stacks
    """Likewise within a call that a hook has timed."""
    is_made_inside: bool
    """Most of that is the thread's own work, too."""

    @staticmethod
    def find(
        timeline: Timeline, trainer: Trainer, segments: StepSegments, *, is_recorded: bool
    ) -> _Asked:
        """`is_recorded`: waits in Python's library were timed, and count no more here."""
        texts = timeline.source_lines
        stacks = list(find_stacks(timeline, segments, (trainer.pid,), tid=trainer.tid))
        usual = find_backward(stacks, timeline, trainer.pid)
        told = None if usual else find_told(timeline, trainer.pid)
        usual = usual or told
        model = find_most_common(stacks, "forward", texts)
        found = [
            (frames, at, n)
            for frames, n in stacks
            if (at := _asks_at(frames, usual or model, texts))
        ]
        if not found and not is_recorded:
            found = _find_reading(stacks, told or model or usual, timeline, trainer, segments)
        timed = [each for each in found if is_recorded and _is_timed(each[0])]
        found = [each for each in found if each not in timed]
        total = sum(n for _, n in stacks)
        between = sum(n for frames, n in stacks if find_loop_stage(frames, texts) in _BETWEEN)
        between -= sum(n for _, _, n in timed)
        inside = sum(n for _, _, n in timed)
        working = sum(n for frames, _, n in timed if not is_idle(frames, texts))
        seen = sum(n for _, _, n in found)
        own = sum(n for frames, _, n in found if not is_idle(frames, texts))
        gap = _part_frac(segments, "forward") + (_part_frac(segments, "loop") if told else 0.0)
        is_seen = between >= _FEW_SAMPLES or gap < _SHORT_GAP
        is_told = bool(usual or model) and total >= _FEW_SAMPLES and is_seen
        return _Asked(
            wait=_as_share(gap, seen, max(1, between))
            if is_told
            else _too_few(timeline, trainer, total),
            is_own=own >= _MOSTLY * seen,
            places=frozenset(
                [
                    *(frames[at - 1].place for frames, at, _ in (*found, *timed)),
                    *([told[-1].place] if told else []),
                ]
            ),
            below=[(frames[at:] or frames[-1:], n) for frames, at, n in found],
            inside=[(_below_hook(frames), n) for frames, _, n in timed],
            is_made_inside=inside >= _FEW_SAMPLES and working >= _MOSTLY * inside,
        )


def _too_few(timeline: Timeline, trainer: Trainer, total: int) -> Signal | None:
    """Steps without frames of their own: nothing else could have shown the rest of the loop."""
    if not is_compiled(timeline, trainer.pid):
        return None
    return Missing(reason=f"only {total} stack samples show what the loop does between its steps")


def _find_reading(
    stacks: Stacks,
    model: list[Frame] | None,
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
) -> list[tuple[list[Frame], int, int]]:
    """Functions that the loop calls before the model, if they mostly read or wait: `get_batch()`.

    Those that compute are code of the step like any other.
    """
    texts = timeline.source_lines
    early = [
        (frames, at, n)
        for frames, n in stacks
        if find_loop_stage(frames, texts) == "loop"
        and (at := _parts_at(frames, model)) < len(frames) - 1
        and comes_before(frames, model)
    ]
    everything = sum(n for _, n in stacks)
    taken = sum(n for _, _, n in early)
    waits = sum(n for frames, at, n in early if find_spot(frames[at:], texts).stage in _WAITING)
    looks = look_at_threads(timeline, segments).filter(
        (pl.col("pid") == trainer.pid) & (pl.col("tid") == trainer.tid)
    )
    blocked = looks.filter(pl.col("state").is_in([*STORAGE_STATES, "metadata"]))
    blocked_frac = float(blocked["count"].sum()) / max(1.0, float(looks["count"].sum()))
    is_waiting = max(waits, blocked_frac * everything) >= _MOSTLY * taken
    return [(frames, at + 1, n) for frames, at, n in early] if taken and is_waiting else []


def _parts_at(frames: list[Frame], other: list[Frame] | None) -> int:
    """Index of the first frame that differs."""
    pairs = zip(frames, other or [], strict=False)
    return next((at for at, (mine, theirs) in enumerate(pairs) if mine != theirs), len(frames))


def _asks_at(frames: list[Frame], usual: list[Frame] | None, texts: Mapping[str, str]) -> int:
    """Index of the frame below the line of the loop that asks for a batch; 0 if none does.

    Where a stack parts from that of a backward pass, in one function, is the loop.
    """
    if find_loop_stage(frames, texts) not in _BETWEEN:
        return 0
    at = _parts_at(frames, usual)
    if usual is None or at >= min(len(frames), len(usual)):
        return 0
    mine, theirs = frames[at], usual[at]
    if (mine.function, mine.file) != (theirs.function, theirs.file):
        return at if at and _ASYNC.search(frames[at - 1].file) else 0
    text = texts.get(mine.place, "")
    is_last = at + 1 == len(frames)
    is_asking = _ASKS.search(text) or ((is_last or is_waiting(frames)) and _TAKES.search(text))
    return at + 1 if is_asking or _ASYNC.search(mine.file) else 0


def _is_timed(frames: list[Frame]) -> bool:
    """In a call that a hook stands around, or in one that it has replaced in Python's library."""
    return is_waiting(frames) or any(_HOOK.search(frame.file) for frame in frames)


def _below_hook(frames: list[Frame]) -> list[Frame]:
    at = next((at for at, frame in enumerate(frames) if _HOOK.search(frame.file)), 0)
    return frames[at + 1 :] or frames[-1:]


def _as_share(gap: float, seen: int, between: int) -> Signal:
    """Of the window: as much of the gap, whose length is known, as of the samples in it."""
    found = proportion(seen, between, "stacks: the loop asks for a batch")
    if not isinstance(found, Reading):
        return found
    low, high = (gap * (end or 0.0) for end in (found.low, found.high))
    return msgspec.structs.replace(found, value=gap * found.value, low=low, high=high)


def _part_frac(segments: StepSegments, part: str) -> float:
    pieces = segments.pieces.filter(pl.col("part") == part)
    return float((pieces["end_ns"] - pieces["start_ns"]).sum()) / segments.wall_ns


def _input_frac(segments: StepSegments) -> float:
    return _part_frac(segments, "input")


def rank_spots(
    stacks: Iterable[tuple[list[Frame], int]], texts: Mapping[str, str]
) -> list[HotLine]:
    """Lines of user code and their stages, the hottest first."""
    hits: Counter[SampleKey] = Counter()
    for frames, count in stacks:
        hits[find_spot(frames, texts)] += count
    return rank_lines(hits, texts)


def _describe(
    loader: LoaderFacts | None, asked: _Asked, members: int, kind: str | None
) -> LoaderFacts:
    """Settings as of a loader: what it is called, how many prepare batches, and what they are."""
    name = next((frames[0].function for frames, _ in asked.below), None)
    facts = loader or LoaderFacts(loader=name, framework=PYTHON_SOURCE)
    return msgspec.structs.replace(facts, num_workers=members, context=kind)


def _fetch_inline(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    wait: float,
    lines: list[HotLine],
) -> Fetches:
    """What the training thread did while it made its batches, in the shape of fetches.

    A model neither reads nor looks up files: in such a state the thread makes a batch. As often as
    it ran at all it may have run there; what is left of the time it slept in a read that is delayed
    if its lines read, else it was blocked in something else.
    """
    looks = timeline.table("states").filter(
        (pl.col("pid") == trainer.pid)
        & (pl.col("tid") == trainer.tid)
        & pl.col("window_ns").is_between(segments.start_ns, segments.end_ns)
    )
    seen = float(looks["count"].sum())
    mine = looks.filter(pl.col("state").is_in([*STORAGE_STATES, "metadata"]))
    reads = float(mine["count"].sum())
    scale = min(1.0, wait * seen / reads) if reads else 1.0
    left = max(0.0, wait * seen - reads)
    running = min(left, float(looks.filter(pl.col("state") == "running")["count"].sum()))
    blocked = "read" if share_of(lines, "read", "decode") > share_of(lines, "sleep") else "sleep"
    made = {"running": running, blocked: left - running}
    shape = mine.with_columns((pl.col("count") * scale).round().cast(pl.Int32))
    rest = looks.clear().select(shape.columns)
    rows = [
        {
            **dict.fromkeys(("window_ns", "pid", "tid", "phase", "place"), 0),
            "syscall": "",
            "state": state,
            "count": round(count),
        }
        for state, count in made.items()
        if round(count)
    ]
    grown = thread_growth(timeline, segments, trainer.tid)
    steps = max(1, segments.boundaries.len() - 1)
    return Fetches(
        rows=fetch_table(timeline, trainer).clear(),
        states=pl.concat([shape, pl.DataFrame(rows, schema=rest.schema)]),
        threads=1,
        looks=round(wait * seen),
        cpu_part=grown[0] / sum(grown) if grown is not None and sum(grown) > 0 else None,
        batch_s=wait * segments.wall_ns / steps / 1e9,
    )


def with_clocks(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    fetches: Fetches,
    stages: Stages | None,
) -> Fetches:
    """Add what the clocks of processes say that leave no records of their own."""
    if stages is None or fetches.rows.height:
        return fetches
    grown = (
        timeline.table("clocks")
        .filter(
            pl.col("tid").is_in(list(trainer.worker_tids or trainer.worker_pids))
            & pl.col("at_ns").is_between(segments.start_ns, segments.end_ns)
        )
        .group_by("pid")
        .agg(pl.col("oncpu_ns", "runq_ns").max() - pl.col("oncpu_ns", "runq_ns").min())
    )
    ran, queued = float(grown["oncpu_ns"].sum()), float(grown["runq_ns"].sum())
    part = ran / (ran + queued) if ran + queued > 0 else None
    return replace(fetches, cpu_part=part, batch_s=stages.batch_s)


def add_to_recorded(segments: StepSegments, wait: Signal | None) -> Signal | None:
    """Waits that hooks timed, and what the loop's own code adds to them."""
    if not isinstance(wait, Reading):
        return None
    recorded = _input_frac(segments)
    low, high = (None if end is None else recorded + end for end in (wait.low, wait.high))
    return msgspec.structs.replace(wait, value=recorded + wait.value, low=low, high=high)
