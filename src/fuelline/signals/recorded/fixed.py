"""The job as `run --fix` left it: since when, with which settings, and how it was before.

Events of --fix in, the stretch of steps that a diagnosis should judge out. A report that spoke of
the whole run would speak of a job that is no more.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.diagnosis.fixes import BeforeAfter, Stretch
from fuelline.schema.diagnosis.trials import Recommendation, Setting
from fuelline.schema.readings import Missing
from fuelline.signals.recorded.budget import measure_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.fixes import FixEvent
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_ENOUGH_STEPS = 20
_ENOUGH_NS = 2 * 10**9
"""A second of samples of threads is the least that a decomposition takes, and half of the time
training may not wait."""
_WAITS = ("input", "epoch start")


@dataclass(frozen=True)
class FixedJob:
    """The stretch to judge, and what changed."""

    segments: StepSegments
    workers: int
    prefetch: int | None
    effect: BeforeAfter | None
    recommended: Recommendation | None = None
    """What --fix had arrived at, where the job ended too soon after that to judge it."""

    def adjust(self, facts: Facts) -> Facts:
        """Facts of the stretch, with the settings that held in it and not those of the script."""
        if facts.loader is None:
            return facts
        loader = msgspec.structs.replace(
            facts.loader, num_workers=self.workers, prefetch_factor=self.prefetch
        )
        demands = msgspec.structs.replace(facts.demands, is_whole_job=False)
        return msgspec.structs.replace(facts, loader=loader, demands=demands)


def find_fixed(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, events: Sequence[FixEvent]
) -> FixedJob | None:
    """None for a job in which --fix changed nothing.

    Where the last setting did not hold for long enough, the longest stretch under one setting is
    judged: a mixture of several would be called by none of them.
    """
    mine = _of_training(trainer, events)
    changes = [event for event in mine if event.event == "change"]
    kept = [event for event in mine if event.event == "trial" and event.verdict == "kept"]
    if not changes:
        return None
    served = next((event for event in mine if event.event == "served"), changes[0])
    before = segments.between(segments.start_ns, changes[0].at_ns)
    settled = _find_settled(segments, changes, kept)
    now = settled or (changes[-1], segments.between(changes[-1].at_ns, segments.end_ns))
    effect = None
    if before is not None and now[1] is not None:
        effect = BeforeAfter(
            before=_describe(timeline, trainer, before, served.workers),
            after=_describe(timeline, trainer, now[1], now[0].active),
            is_judged_after=settled is not None,
        )
    if settled is None:
        return _unsettled(segments, served, changes, effect)
    last, stretch = settled
    return FixedJob(stretch, last.active, _depth(last), effect)


def _unsettled(
    segments: StepSegments, served: FixEvent, changes: list[FixEvent], effect: BeforeAfter | None
) -> FixedJob:
    """The longest stretch under one setting, and what --fix had arrived at."""
    last = changes[-1]
    differs = last.active != served.workers
    arrived = Recommendation(
        settings=[Setting(knob="num_workers", value=last.active)] if differs else [],
        workers=last.active,
        speedup=Missing(reason="the job ended before this setting could be judged"),
        why="--fix had come this far when the job ended; a longer run would tell",
    )
    edges = [segments.start_ns, *(each.at_ns for each in changes), segments.end_ns]
    stretches = [segments.between(*edge) for edge in itertools.pairwise(edges)]
    held = [(served.workers, served.prefetch), *((each.active, _depth(each)) for each in changes)]
    judged = [pair for pair in zip(stretches, held, strict=True) if pair[0] is not None]
    if not judged:
        return FixedJob(segments, last.active, _depth(last), effect, arrived)
    stretch, setting = max(judged, key=lambda pair: pair[0].wall_ns if pair[0] is not None else 0)
    return FixedJob(stretch or segments, *setting, effect, arrived)


def _depth(change: FixEvent) -> int | None:
    return max(1, round(change.window / change.active)) if change.active else None


def _of_training(trainer: Trainer, events: Sequence[FixEvent]) -> list[FixEvent]:
    """Events of the loader that the trainer took most batches from."""
    own = [event for event in events if event.pid == trainer.pid]
    ends = [event for event in own if event.event == "end" and event.batches]
    changed = [event.loader for event in own if event.event == "change"]
    if not changed:
        return []
    busiest = max(ends, key=lambda event: event.batches or 0).loader if ends else changed[0]
    return [event for event in own if busiest in (event.loader, event.number)]


def _find_settled(
    segments: StepSegments, changes: list[FixEvent], kept: list[FixEvent]
) -> tuple[FixEvent, StepSegments] | None:
    """The last change after which there is enough, or the last that was kept."""
    holding = [
        change
        for change in changes
        if any((each.active, each.window) == (change.active, change.window) for each in kept)
    ]
    for change in [changes[-1], *reversed(holding)]:
        later = [each.at_ns for each in changes if each.at_ns > change.at_ns]
        stretch = segments.between(change.at_ns, min(later, default=segments.end_ns))
        if stretch is None or stretch.wall_ns < _ENOUGH_NS:
            continue
        if stretch.boundaries.len() > _ENOUGH_STEPS:
            return change, stretch
    return None


def _describe(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, workers: int
) -> Stretch:
    steps = measure_steps(timeline, trainer, segments)
    waited = segments.pieces.filter(pl.col("part").is_in(_WAITS))
    waited_ns = float((waited["end_ns"] - waited["start_ns"]).sum())
    return Stretch(
        seconds=segments.wall_ns / 1e9,
        step_seconds=steps.mean,
        wait_share=waited_ns / segments.wall_ns if steps.count >= _ENOUGH_STEPS else None,
        workers=workers,
        samples_per_s=steps.samples_per_s,
    )
