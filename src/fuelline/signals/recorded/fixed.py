"""The job as `run --fix` left it: since when, with which settings, and how it was before.

Events of --fix in, the stretch of steps that a diagnosis should judge out. A report that spoke of
the whole run would speak of a job that is no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.diagnosis.fixes import BeforeAfter, Stretch
from fuelline.schema.diagnosis.trials import Recommendation, Setting
from fuelline.schema.readings import Missing
from fuelline.signals.recorded.budget import count_job_batches, measure_steps

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
    job_batches: int | None = None
    """Of all settings together: who writes one of them into the script starts workers once."""
    recommended: Recommendation | None = None
    """What --fix had arrived at, where the job ended too soon after that: for want of a model."""

    def adjust(self, facts: Facts) -> Facts:
        """Facts of the stretch, with the settings that held in it and not those of the script."""
        if facts.loader is None:
            return facts
        loader = msgspec.structs.replace(
            facts.loader, num_workers=self.workers, prefetch_factor=self.prefetch
        )
        demands = msgspec.structs.replace(facts.demands, job_batches=self.job_batches)
        return msgspec.structs.replace(facts, loader=loader, demands=demands)


@dataclass(frozen=True)
class _Held:
    """A setting, and the steps that were fed under it."""

    change: FixEvent | None
    workers: int
    prefetch: int | None
    stretch: StepSegments

    @property
    def is_long(self) -> bool:
        steps = self.stretch.boundaries.len()
        return self.stretch.wall_ns >= _ENOUGH_NS and steps > _ENOUGH_STEPS


def find_fixed(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, events: Sequence[FixEvent]
) -> FixedJob | None:
    """None for a job in which --fix changed nothing.

    The last setting is judged, or the last that was kept. Where neither held for long enough, the
    longest stretch under one setting is: a mixture of several would be called by none of them.
    """
    mine = _of_training(trainer, events)
    changes = [event for event in mine if event.event == "change"]
    if not changes:
        return None
    served = next((event for event in mine if event.event == "served"), changes[0])
    kept = [event for event in mine if event.event == "trial" and event.verdict == "kept"]
    held = _cut(segments, served, changes)
    settled = _find_settled(held, changes[-1], kept)
    judged = settled or max(held, key=lambda each: each.stretch.wall_ns, default=None)
    is_now = settled is not None or (judged is not None and judged.change is changes[-1])
    before = segments.between(segments.start_ns, changes[0].at_ns)
    now = judged.stretch if is_now and judged else _since(segments, changes[-1])
    effect = None
    if before is not None and now is not None:
        workers = judged.workers if is_now and judged else changes[-1].active
        effect = BeforeAfter(
            before=_describe(timeline, trainer, before, served.workers),
            after=_describe(timeline, trainer, now, workers),
            is_judged_after=is_now,
        )
    arrived = _arrived(served, changes[-1]) if settled is None else None
    batches = count_job_batches(timeline, trainer, segments)
    if judged is None:
        return FixedJob(segments, changes[-1].active, _depth(changes[-1]), effect, batches, arrived)
    return FixedJob(judged.stretch, judged.workers, judged.prefetch, effect, batches, arrived)


def _cut(segments: StepSegments, served: FixEvent, changes: list[FixEvent]) -> list[_Held]:
    """The stretches under one setting each, without steps fed by what the former one had ordered.

    Batches on their way when a setting changes were fetched under the old one: by sixteen workers
    that shared two cores, say, where two work now.
    """
    edges = [segments.start_ns, *(each.at_ns for each in changes), segments.end_ns]
    ordered = [0, served.workers * (served.prefetch or 1), *(each.window for each in changes)]
    held = []
    for place, change in enumerate([None, *changes]):
        whole = segments.between(edges[place], edges[place + 1])
        if whole is None or whole.boundaries.len() <= ordered[place] + 1:
            continue
        stretch = segments.between(int(whole.boundaries[ordered[place]]), edges[place + 1])
        if stretch is None:
            continue
        workers = served.workers if change is None else change.active
        depth = served.prefetch if change is None else _depth(change)
        held.append(_Held(change, workers, depth, stretch))
    return held


def _since(segments: StepSegments, change: FixEvent) -> StepSegments | None:
    return segments.between(change.at_ns, segments.end_ns)


def _arrived(served: FixEvent, last: FixEvent) -> Recommendation:
    """What to say of a job that ended too soon for the model to say more."""
    differs = last.active != served.workers
    return Recommendation(
        settings=[Setting(knob="num_workers", value=last.active)] if differs else [],
        workers=last.active,
        speedup=Missing(reason="the job ended before this setting could be judged"),
        why="--fix had come this far when the job ended; a longer run would tell",
    )


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


def _find_settled(held: list[_Held], last: FixEvent, kept: list[FixEvent]) -> _Held | None:
    """The last setting if there is enough of it, or the last that was kept."""
    settings = {(each.active, each.window) for each in kept}
    for each in reversed(held):
        if each.change is None or not each.is_long:
            continue
        if each.change is last or (each.change.active, each.change.window) in settings:
            return each
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
