"""Meetings: collectives matched across ranks, with who came when. Pure lookups, no verdict.

A collective has the same group, kind and number on every rank. What counts is the *arrival*: the
durations of a phase are made equal by the collective that ends it. A rank that arrives before the
last one waits for it; what remains after the last arrival is the exchange itself. An exchange may
end later on one rank than on another (the sender of a broadcast is done at once); a rank that is
late by that at the next meeting is not waited for, the exchange is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.wire import Collective, Flag, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.timeline.timeline import Timeline
    from fuelline.timeline.trainer import Trainer

KEY = ("group", "op", "number")

_COLUMNS = {
    "group": pl.UInt32(),
    "op": pl.UInt8(),
    "number": pl.UInt32(),
    "rank": pl.Int32(),
    "open_ns": pl.Int64(),
    "arrive_ns": pl.Int64(),
    "done_ns": pl.Int64(),
    "size_bytes": pl.Int64(),
    "ranks": pl.Int32(),
}
"""Narrow, because an hour of 64 ranks has five million of these."""


def find_arrivals(timeline: Timeline, trainers: Sequence[Trainer]) -> pl.DataFrame:
    """One row a rank and collective: when it came, and when it was done.

    | group | op | number | rank | open_ns | arrive_ns | done_ns | size_bytes | ranks |

    From `open_ns` on the rank may have sent: gradients are sent while backward still runs.
    """
    ranks = pl.DataFrame(
        [(each.pid, each.rank) for each in trainers if each.rank is not None],
        schema={"pid": pl.Int32, "rank": pl.Int32},
        orient="row",
    )
    came = (
        timeline.table("events")
        .filter(
            pl.col("kind").is_in([Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT])
            & (pl.col("d") >= 0)
            & (pl.col("flags").cast(pl.Int64) & int(Flag.ERROR) == 0)
        )
        .join(ranks, on="pid")
        .select(
            "rank",
            pl.col("a").cast(pl.UInt8).alias("op"),
            pl.col("b").alias("size_bytes"),
            pl.col("c").cast(pl.UInt32).alias("group"),
            pl.col("d").cast(pl.UInt32).alias("number"),
            pl.col("e").cast(pl.Int32).alias("ranks"),
            pl.col("start_ns"),
            (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"),
        )
        .group_by(*KEY, "rank")
        .agg(
            pl.col("start_ns").min().alias("arrive_ns"),
            pl.col("end_ns").max().alias("done_ns"),
            pl.col("size_bytes").first(),
            pl.col("ranks").first(),
        )
    )
    return _with_backward(timeline, ranks, came).select(*_COLUMNS)


def _with_backward(timeline: Timeline, ranks: pl.DataFrame, came: pl.DataFrame) -> pl.DataFrame:
    backward = (
        timeline.table("events")
        .filter(pl.col("kind") == Kind.BACKWARD)
        .join(ranks, on="pid")
        .select("rank", pl.col("start_ns").alias("backward_ns"))
        .sort("backward_ns")
    )
    open_ns = (
        pl.when(pl.col("op") == int(Collective.GRADIENTS))
        .then(pl.coalesce("backward_ns", "arrive_ns"))
        .otherwise("arrive_ns")
    )
    return (
        came.sort("arrive_ns")
        .join_asof(backward, left_on="arrive_ns", right_on="backward_ns", by="rank")
        .with_columns(open_ns=open_ns)
    )


def match_meetings(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Arrivals at meetings of which at least two ranks were recorded, with who waited.

    Adds `last_ns`, the last arrival, and `wait_ns`, what this rank waited for it, less what the
    exchange before took longer on the last one.
    """
    met = (
        arrivals.filter(pl.len().over(KEY) > 1)
        .with_columns(last_ns=pl.col("arrive_ns").max().over(KEY))
        .with_columns(
            wait_ns=(pl.min_horizontal("last_ns", "done_ns") - pl.col("arrive_ns")).clip(0)
        )
        .sort("last_ns", *KEY, "rank")
    )
    return _without_inherited(met)


def _without_inherited(met: pl.DataFrame) -> pl.DataFrame:
    """Take off the waiting that an earlier exchange caused by ending later on the last rank.

    Only where all ranks come from the same meeting and had left it: overlapping ones tell nothing.
    """
    before = ("group", "rank")
    stayed = (pl.col("done_ns") - pl.col("last_ns")).clip(0).shift(1).over(before)
    earlier = pl.struct("op", "number").shift(1).over(before)
    left = pl.col("done_ns").shift(1).over(before) <= pl.col("arrive_ns")
    same = (pl.col("earlier").n_unique().over(KEY) == 1) & pl.col("left").all().over(KEY)
    of_last = pl.col("stayed_ns").sort_by("arrive_ns").last().over(KEY)
    inherited = pl.when(same).then((of_last - pl.col("stayed_ns")).clip(0)).fill_null(0)
    return (
        met.with_columns(stayed_ns=stayed, earlier=earlier, left=left.fill_null(value=False))
        .with_columns(wait_ns=(pl.col("wait_ns") - inherited).clip(0))
        .drop("stayed_ns", "earlier", "left")
    )
