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

from fuelline.schema.wire import Flag, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.timeline.timeline import Timeline
    from fuelline.timeline.trainer import Trainer

KEY = ("group", "op", "number")


def match_meetings(timeline: Timeline, trainers: Sequence[Trainer]) -> pl.DataFrame:
    """One row a rank and meeting, for meetings of which at least two ranks were recorded.

    | group | op | number | rank | arrive_ns | done_ns | size_bytes | ranks | last_ns | wait_ns |

    `last_ns` is the last arrival, `wait_ns` what this rank waited for it, less what the exchange
    before took longer on the last one.
    """
    ranks = pl.DataFrame(
        [(each.pid, each.rank) for each in trainers if each.rank is not None],
        schema={"pid": pl.Int32, "rank": pl.Int64},
        orient="row",
    )
    events = (
        timeline.table("events")
        .filter(
            pl.col("kind").is_in([Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT])
            & (pl.col("d") >= 0)
            & (pl.col("flags").cast(pl.Int64) & int(Flag.ERROR) == 0)
        )
        .join(ranks, on="pid")
        .rename({"a": "op", "b": "size_bytes", "c": "group", "d": "number", "e": "ranks"})
    )
    ends = pl.col("start_ns") + pl.col("dur_ns")
    arrivals = events.group_by(*KEY, "rank").agg(
        pl.col("start_ns").min().alias("arrive_ns"),
        ends.max().alias("done_ns"),
        pl.col("size_bytes").first(),
        pl.col("ranks").first(),
    )
    last = pl.col("arrive_ns").max().over(KEY)
    met = (
        arrivals.filter(pl.len().over(KEY) > 1)
        .with_columns(last_ns=last)
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
