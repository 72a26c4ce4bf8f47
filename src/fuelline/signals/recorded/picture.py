"""Segments and samples in, a picture over time out: aggregated, so that a page stays small."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.picture import Moment, RunPicture
from fuelline.schema.parts import STEP_PARTS
from fuelline.schema.units import amount, count
from fuelline.signals.levels import find_levels
from fuelline.signals.recorded.lanes import find_throttled, list_lanes

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import BudgetPart
    from fuelline.schema.diagnosis.fixes import FixEvent
    from fuelline.schema.diagnosis.picture import MomentKind
    from fuelline.schema.parts import StepPart
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

MOST_BINS = 720
"""Of a lane, at most one a second, as the observer samples."""
MOST_MOMENTS = 200
_MOMENTS: dict[StepPart, MomentKind] = {
    "epoch start": "epoch",
    "checkpoint": "checkpoint",
    "validation": "validation",
}


def picture_run(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    *,
    budget: list[BudgetPart],
    fixes: list[FixEvent],
    judged: StepSegments,
) -> RunPicture:
    """`budget`: of the segments that were judged; `fixes`: what `run --fix` wrote."""
    origin_ns = timeline.run.started_ns
    seconds = segments.wall_ns / 1e9
    bins = max(1, min(MOST_BINS, math.floor(seconds)))
    moments = _moments(segments, origin_ns)
    moments += [
        Moment(kind="fix", at_s=(each.at_ns - origin_ns) / 1e9, detail=_fix_words(each))
        for each in fixes
        if each.event == "change" and segments.start_ns <= each.at_ns <= segments.end_ns
    ]
    moments += find_throttled(timeline, segments, bins)
    moments.sort(key=lambda moment: moment.at_s)
    shown = _thinned(moments)
    is_part = (judged.start_ns, judged.end_ns) != (segments.start_ns, segments.end_ns)
    return RunPicture(
        start_s=(segments.start_ns - origin_ns) / 1e9,
        seconds=seconds,
        levels=find_levels(_by_step(segments, _corrections(judged, budget)), STEP_PARTS),
        bin_s=seconds / bins,
        lanes=list_lanes(timeline, trainer, segments, bins),
        moments=shown,
        moments_left_out=len(moments) - len(shown),
        judged=((judged.start_ns - origin_ns) / 1e9, (judged.end_ns - origin_ns) / 1e9)
        if is_part
        else None,
        kept_frac=segments.kept_frac,
        which="" if trainer.rank is None else f"rank {trainer.rank}",
    )


def _fix_words(event: FixEvent) -> str:
    """What was turned: how many workers, or how many batches they prepare ahead."""
    now = count(event.active, "worker")
    if event.was is None:
        return f"{event.why}: {now}" if event.why else now
    workers, ahead = event.was
    if workers == event.active:
        return f"{ahead} to {amount(event.window, 'batch', 'batches')} ahead"
    return f"{workers} to {now}"


def _thinned(moments: list[Moment]) -> list[Moment]:
    """Rare kinds first: of a kind that comes often, as many as there is room for."""
    stride = math.ceil(len(moments) / MOST_MOMENTS) or 1
    if stride == 1:
        return moments
    kinds = {kind: [each for each in moments if each.kind == kind] for kind in {
        each.kind for each in moments
    }}  # fmt: skip
    kept = [
        each
        for found in kinds.values()
        for each in found[:: max(1, math.ceil(len(found) * len(kinds) / MOST_MOMENTS))]
    ]
    return sorted(kept, key=lambda moment: moment.at_s)


def _corrections(
    segments: StepSegments, budget: list[BudgetPart]
) -> list[tuple[StepPart, StepPart, float]]:
    """Which share of one part the budget counts as another: stack samples told the two apart.

    They did so for the window as a whole, so that the same share is moved in every step.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    raw: dict[StepPart, int] = dict(segments.pieces.group_by("part").agg(length.sum()).iter_rows())
    told = {part.part: part.share * segments.wall_ns for part in budget}
    moved: list[tuple[StepPart, StepPart, float]] = []
    sources: tuple[tuple[StepPart, tuple[StepPart, ...]], ...] = (
        ("forward", ("own code", "input")),
        ("loop", ("sync", "unexplained")),
    )
    for source, targets in sources:
        has = raw.get(source, 0)
        for target in targets:
            more = told.get(target, 0.0) - raw.get(target, 0)
            if has and more > 0:
                moved.append((source, target, min(1.0, more / has)))
    return moved


def _by_step(segments: StepSegments, moved: list[tuple[StepPart, StepPart, float]]) -> pl.DataFrame:
    """A row per step: start_ns, length_ns (of the last, what comes after it), and its parts."""
    ends = segments.boundaries
    starts = pl.DataFrame({"start_ns": ends}).with_row_index("step")
    spent = (
        segments.pieces.group_by("step", "part")
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .pivot(on="part", index="step", values="ns")
        .fill_null(0)
    )
    steps = (
        starts.with_columns(pl.col("step").cast(pl.Int64))
        .join(spent, on="step", how="left")
        .fill_null(0)
        .sort("step")
        .with_columns(
            length_ns=pl.col("start_ns").shift(-1).fill_null(segments.end_ns) - pl.col("start_ns"),
            is_step=pl.int_range(pl.len()) < ends.len() - 1,
        )
    )
    for source, target, share in moved:
        given = (pl.col(source) * share).cast(pl.Int64)
        has = pl.col(target) if target in steps.columns else pl.lit(0)
        steps = steps.with_columns((has + given).alias(target), (pl.col(source) - given))
    return steps


def _moments(segments: StepSegments, origin_ns: int) -> list[Moment]:
    """Epochs, checkpoints and validations, each once for the step that it lies in."""
    rows = (
        segments.pieces.filter(pl.col("part").is_in(list(_MOMENTS)))
        .group_by("step", "part")
        .agg(
            at_ns=pl.col("start_ns").min(),
            ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        )
        .sort("at_ns")
    )
    return [
        Moment(kind=_MOMENTS[part], at_s=(at_ns - origin_ns) / 1e9, seconds=ns / 1e9)
        for part, at_ns, ns in rows.select("part", "at_ns", "ns").iter_rows()
    ]
