"""The trainer thread's time, cut into tiles that do not overlap and leave nothing out.

Hook events are tiles as they are; the gaps between them get their part from what came before: after
a training batch it is forward, after the optimizer it is the loop's own code, and so on. The tiles
cover the window from its first to its last nanosecond, so that a budget sums to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.wire import Flag, Kind

if TYPE_CHECKING:
    from fuelline.timeline.timeline import Timeline
    from fuelline.timeline.trainer import Trainer

PARTS = (
    "input",
    "epoch start",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "collectives",
    "sync",
    "loop",
    "validation",
    "checkpoint",
    "garbage collection",
    "profiler",
    "unexplained",
)
"""collectives: in a call that all ranks take part in, whichever part of the step it belongs to.
input: waiting for a training batch. epoch start: building an iterator, its first batch, its end.
loop: the user's code between an optimizer step and the next batch. profiler: our own `--zoom`.
unexplained: not even that."""

_TILED = {
    Kind.ITER: "epoch start",
    Kind.PIN: "transfer",
    Kind.COPY: "transfer",
    Kind.BACKWARD: "backward",
    Kind.OPTIMIZER: "optimizer",
    Kind.SYNC: "sync",
    Kind.SAVE: "checkpoint",
    Kind.GC: "garbage collection",
    Kind.ZOOM: "profiler",
}
_MODE_AFTER = {Kind.BACKWARD: "optimizer", Kind.OPTIMIZER: "loop"}
"""What the thread does after an event, until the next one says otherwise."""


@dataclass(frozen=True)
class Tiling:
    """Tiles of the window, and the window itself."""

    pid: int
    tiles: pl.DataFrame
    """start_ns, end_ns, part, kind (0 for a gap), step (index of the step it starts in)."""
    start_ns: int
    end_ns: int
    boundaries: pl.Series
    """End of each step inside the window, in order; the first equals `start_ns`."""

    @property
    def wall_ns(self) -> int:
        """Length of the window."""
        return self.end_ns - self.start_ns


def cut_tiles(timeline: Timeline, trainer: Trainer) -> Tiling | None:
    """Cut the window into tiles; None if there are fewer than two step boundaries."""
    events = (
        timeline.table("events")
        .filter((pl.col("pid") == trainer.pid) & (pl.col("tid") == trainer.tid))
        .with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .sort("start_ns", pl.col("dur_ns"), descending=[False, True])
    )
    events = _without_farewell(events)
    boundaries = _boundaries(events, trainer)
    if boundaries.len() < 2:
        return None
    start_ns = int(boundaries[0])
    tiles = _overlay(
        _with_gaps(_outermost(_named(events, trainer))),
        events.filter(pl.col("kind").is_in([Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT])),
    )
    end_ns = int(tiles["end_ns"].max())  # type: ignore[arg-type]
    inside = tiles.with_columns(pl.col("start_ns").clip(start_ns, None)).filter(
        pl.col("end_ns") > pl.col("start_ns")
    )
    return Tiling(
        pid=trainer.pid,
        tiles=_number_steps(inside, boundaries),
        start_ns=start_ns,
        end_ns=end_ns,
        boundaries=boundaries,
    )


def _without_farewell(events: pl.DataFrame) -> pl.DataFrame:
    """Drop collections after everything else: the interpreter clears up, training is over."""
    others = events.filter(pl.col("kind") != Kind.GC)
    return events.filter(pl.col("start_ns") < (others["end_ns"].max() or 0))


def _boundaries(events: pl.DataFrame, trainer: Trainer) -> pl.Series:
    """Ends of steps: of the optimizer that steps most (of several, the one that steps last).

    Without an optimizer a step ends when a batch has arrived.
    """
    if trainer.step_kind == "train":
        steps = events.filter(pl.col("kind") == Kind.OPTIMIZER)
        leader = (
            steps.group_by("a")
            .agg(pl.len().alias("n"), pl.col("start_ns").min().alias("first"))
            .sort("n", "first", descending=True)["a"][0]
        )
        return steps.filter(pl.col("a") == leader)["end_ns"]
    return events.filter(
        (pl.col("kind") == Kind.NEXT)
        & pl.col("a").is_in(trainer.train_loaders)
        & (pl.col("flags").cast(pl.Int64) & int(Flag.END | Flag.ERROR) == 0)
    )["end_ns"]


def _named(events: pl.DataFrame, trainer: Trainer) -> pl.DataFrame:
    """Give each hook event its part and the mode that follows it."""
    kind = pl.col("kind")
    # One loader may serve both training and validation: a batch is for validation if gradients were
    # off and no learning follows it.
    learning = pl.col("flags").cast(pl.Int64) & int(Flag.GRAD) != 0
    learns = kind.is_in([Kind.BACKWARD, Kind.OPTIMIZER])
    marks = pl.when(kind == Kind.NEXT).then(pl.lit(0)).when(learns).then(pl.lit(1))
    followed = marks.shift(-1).backward_fill() == 1
    training = pl.col("a").is_in(trainer.train_loaders) & (
        learning | followed | (kind != Kind.NEXT) | (trainer.step_kind == "batch")
    )
    ended = pl.col("flags").cast(pl.Int64) & int(Flag.END) != 0
    turn = (pl.col("e") == 0) | ended
    is_next = kind == Kind.NEXT
    # An iterator built for validation is part of validation.
    part = (
        pl.when(is_next & training & turn)
        .then(pl.lit("epoch start"))
        .when(is_next & training)
        .then(pl.lit("input"))
        .when(is_next | ((kind == Kind.ITER) & ~training))
        .then(pl.lit("validation"))
        .otherwise(kind.replace_strict(_TILED, default=None, return_dtype=pl.String))
    )
    mode = (
        pl.when(is_next & ended)
        .then(pl.lit("loop"))
        .when(is_next & training)
        .then(pl.lit("forward"))
        .when(is_next)
        .then(pl.lit("validation"))
        .otherwise(kind.replace_strict(_MODE_AFTER, default=None, return_dtype=pl.String))
    )
    return events.with_columns(part=part, mode=mode).filter(pl.col("part").is_not_null())


def _outermost(events: pl.DataFrame) -> pl.DataFrame:
    """Drop events that lie inside an earlier one: a collection in backward is part of it."""
    reached = pl.col("end_ns").cum_max().shift(1).fill_null(0)
    return events.filter(pl.col("end_ns") > reached)


def _with_gaps(events: pl.DataFrame) -> pl.DataFrame:
    """Fill the gaps between events with the mode that the last event left behind.

    An optimizer step or batch that follows tells what a gap was: between backward and optimizer it
    is the optimizer's (clipping, unscaling); between an optimizer step and a backward with no batch
    in between it is a forward pass (several backwards a step, data from elsewhere).
    """
    kind_next = pl.col("kind").shift(-1)
    mode = pl.col("mode").forward_fill()
    part = (
        pl.when((mode == "optimizer") & (kind_next != Kind.OPTIMIZER))
        .then(pl.when(kind_next == Kind.BACKWARD).then(pl.lit("forward")).otherwise(pl.lit("loop")))
        .when((mode == "loop") & (kind_next == Kind.BACKWARD))
        .then(pl.lit("forward"))
        .otherwise(mode)
        .fill_null("unexplained")
    )
    gaps = events.select(
        pl.col("end_ns").alias("start_ns"),
        pl.col("start_ns").shift(-1).alias("end_ns"),
        part.alias("part"),
        pl.lit(0, pl.UInt8).alias("kind"),
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    reached = pl.col("end_ns").cum_max().shift(1).fill_null(0)
    tiles = events.select(
        pl.max_horizontal("start_ns", reached).alias("start_ns"), "end_ns", "part", "kind"
    )
    return pl.concat([tiles, gaps]).sort("start_ns", "end_ns")


def _overlay(tiles: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Cut collectives out of whatever they lie in: backward, forward, a gap.

    | tile     | 0..10 backward |      | 0..6 backward | 6..9 collectives | 9..10 backward |
    | collective | 6..9         |  ->
    """
    if not collectives.height:
        return tiles
    reached = pl.col("end_ns").cum_max().shift(1).fill_null(0)
    cuts = collectives.select(
        pl.max_horizontal("start_ns", reached).alias("cut_ns"), pl.col("end_ns").alias("cut_end_ns")
    ).filter(pl.col("cut_end_ns") > pl.col("cut_ns"))
    edges = [tiles["start_ns"], tiles["end_ns"], cuts["cut_ns"], cuts["cut_end_ns"]]
    pieces = (
        pl.concat([edge.alias("start_ns") for edge in edges])
        .unique()
        .sort()
        .to_frame()
        .with_columns(piece_end_ns=pl.col("start_ns").shift(-1))
        .drop_nulls()
        .set_sorted("start_ns")
    )
    tiled = pieces.join_asof(
        tiles.with_columns(tile_ns=pl.col("start_ns")), on="start_ns", strategy="backward"
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    is_cut = pl.col("cut_end_ns") > pl.col("start_ns")
    overlaid: pl.DataFrame = tiled.join_asof(
        cuts, left_on="start_ns", right_on="cut_ns", strategy="backward"
    ).select(
        "start_ns",
        pl.col("piece_end_ns").alias("end_ns"),
        pl.when(is_cut).then(pl.lit("collectives")).otherwise("part").alias("part"),
        pl.when(is_cut).then(pl.lit(Kind.COLLECTIVE, pl.UInt8)).otherwise("kind").alias("kind"),
    )
    return overlaid


def _number_steps(tiles: pl.DataFrame, boundaries: pl.Series) -> pl.DataFrame:
    """A tile belongs to the step in which it starts; 0 is the first step of the window."""
    index = boundaries.search_sorted(tiles["start_ns"], side="right").cast(pl.Int64) - 1
    return tiles.with_columns(index.alias("step"))
