"""Marks on a device's stream, with the device's clock set against the host's.

A mark has two times: when the host queued it, and when the device passed it, by the device's clock.
What must hold for every mark gives the distance of the two: the device passes it after the host has
queued it, and after the last look at which it had not. The largest of these bounds within about a
second is the distance; it is tight whenever the device has run dry once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.wire import Kind, MarkPlace
from fuelline.timeline import events

if TYPE_CHECKING:
    from fuelline.schema.parts import StepPart
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.timeline import Timeline
    from fuelline.timeline.trainer import Trainer

_BLOCK_NS = 500_000_000
"""Clocks drift by some 20 us a second; a block is compared with its neighbours only."""
_LATE_NS = 50_000
"""A mark cannot be passed later than the host knew of it, and not by less than this."""
_LOOKED = (MarkPlace.WAIT_END, MarkPlace.BACKWARD_END, MarkPlace.STEP_END)
"""Just before these marks the earlier ones are looked at."""


_BESIDE = (MarkPlace.BESIDE_BEGIN, MarkPlace.BESIDE_END)
_FEW = 10
_DOING: dict[int, StepPart] = {
    MarkPlace.WAIT_END: "forward",
    MarkPlace.COPY_END: "forward",
    MarkPlace.BACKWARD_BEGIN: "backward",
    MarkPlace.BACKWARD_END: "optimizer",
    MarkPlace.STEP_END: "loop",
}
"""What a device works on after a mark, until another one says otherwise."""
_STALLED: dict[int, StepPart] = {
    MarkPlace.WAIT_END: "input",
    MarkPlace.COPY_END: "transfer",
    MarkPlace.PAUSE_END: "checkpoint",
    MarkPlace.COLLECTIVE_END: "collectives",
}
"""What lies before a mark that ends a stall."""


def align_marks(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Marks of one process in the order of the host, with `run` and `lead_ns`.

    `lead_ns`: how far the device is behind the host there. `run`: leads of others do not compare.
    """
    marks = events.device_marks(timeline, where).filter(~pl.col("place").is_in(_BESIDE))
    if not marks.height:
        return marks
    marks = marks.sort("start_ns", "device_ns")
    return pl.concat([_align(clock) for clock in marks.partition_by("clock")])


def measure_beside(timeline: Timeline, where: pl.Expr) -> int:
    """How long a device copied on other streams than the one that trains."""
    marks = events.device_marks(timeline, where)
    copies = (
        marks.filter(pl.col("place").is_in(_BESIDE))
        .sort("clock", "stream", "start_ns", "device_ns")
        .with_columns(
            took_ns=pl.col("device_ns").diff().over("clock", "stream"),
            is_whole=pl.col("place").diff().over("clock", "stream") == 1,
        )
        .filter(pl.col("is_whole") & (pl.col("took_ns") > 0))
    )
    return int(copies["took_ns"].sum())


def _align(marks: pl.DataFrame) -> pl.DataFrame:
    is_alone = marks["stream"].n_unique() == 1
    looks = marks.filter(pl.col("place").is_in(_LOOKED)).select(
        end_ns="start_ns", looked_ns="start_ns"
    )
    told = (
        marks.with_columns(
            run=_runs() if is_alone else pl.lit(0, pl.UInt32), order=pl.int_range(pl.len())
        )
        .sort("end_ns")
        .join_asof(looks.sort("end_ns"), on="end_ns", allow_exact_matches=False)
        .with_columns(
            # Marks of several streams are looked at in order, one behind the other.
            since_ns=pl.when(is_alone & (pl.col("looked_ns") > pl.col("start_ns")))
            .then("looked_ns")
            .otherwise("start_ns"),
            block=pl.col("start_ns") // _BLOCK_NS,
        )
    )
    bounds = told.group_by("run", "block").agg(
        away_ns=(pl.col("since_ns") - pl.col("device_ns")).max()
    )
    near = pl.concat([bounds.with_columns(pl.col("block") + step) for step in (-1, 0, 1)])
    away = near.group_by("run", "block").agg(pl.col("away_ns").max())
    return (
        told.join(away, on=["run", "block"])
        .with_columns(lead_ns=pl.col("device_ns") + pl.col("away_ns") - pl.col("start_ns"))
        .sort("order")
        .select(*marks.columns, "run", "lead_ns")
    )


def _runs() -> pl.Expr:
    """Another begins where the device would have come later than the host knew of it.

    So it is between two excerpts of a long recording.
    """
    took, known = pl.col("device_ns").diff(), pl.col("start_ns").diff() + pl.col("dur_ns")
    return ((took > known + _LATE_NS) | (took < 0)).fill_null(value=False).cum_sum()


def cut_by_device(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> StepSegments:
    """The same window cut by what the device did, where the host only queues its collectives.

    What a rank is late by shows on its device then: the host goes on, and waits somewhere else.
    Without marks the segments are those of the host.
    """
    queues = any(each.pid == trainer.pid and each.queues for each in timeline.processes)
    within = pl.col("start_ns").is_between(segments.start_ns, segments.end_ns)
    marks = align_marks(timeline, (pl.col("pid") == trainer.pid) & within) if queues else None
    if marks is None or marks.height < _FEW:
        return segments
    clock, stream, _ = marks.group_by("clock", "stream").len().sort("len", descending=True).row(0)
    passed_ns = pl.col("start_ns") + pl.col("lead_ns")
    doing = pl.col("place").replace_strict(_DOING, default=None, return_dtype=pl.String)
    ends = pl.col("place").shift(-1)
    pieces = (
        marks.filter((pl.col("clock") == clock) & (pl.col("stream") == stream))
        .with_columns(doing=doing.forward_fill().fill_null("unexplained"))
        .select(
            start_ns=passed_ns,
            end_ns=passed_ns.shift(-1),
            part=ends.replace_strict(_STALLED, default=None, return_dtype=pl.String).fill_null(
                pl.col("doing")
            ),
            kind=pl.lit(Kind.MARK, pl.UInt8),
            step=pl.lit(0, pl.Int64),
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )
    return replace(segments, pieces=pieces)
