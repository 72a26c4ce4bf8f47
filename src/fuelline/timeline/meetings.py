"""Meetings: collectives matched across ranks, with who came when. Pure lookups, no verdict.

A collective has the same group, kind and number on every rank. What counts is the *arrival*: the
durations of a phase are made equal by the collective that ends it. A rank that arrives before the
last one waits for it; what remains after the last arrival is the exchange itself. An exchange may
end later on one rank than on another (the sender of a broadcast is done at once); a rank that is
late by that at the next meeting is not waited for, the exchange is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.wire import Collective, Flag, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fuelline.timeline.timeline import Timeline
    from fuelline.timeline.trainer import Trainer

KEY = ("group", "op", "number")
MOMENTS = ("open_ns", "arrive_ns", "done_ns")
_ARRIVAL = re.compile(r"arrive_ns_(\d+)")


@dataclass(frozen=True)
class Meetings:
    """One row a meeting, in the order of last arrivals; columns with a rank at their end.

    | group | op | number | size_bytes | ranks | last_ns | late | arrive_ns_0 | done_ns_0 | ... |

    `late` is the rank that came last, `wait_ns_N` what rank N waited for it, less what the exchange
    before took longer on the last one. A rank that took no part has nulls.
    """

    frame: pl.DataFrame
    ranks: tuple[int, ...]

    def of(self, name: str) -> list[pl.Expr]:
        """One of a meeting's columns, for every rank."""
        return [pl.col(f"{name}_{rank}") for rank in self.ranks]

    def within(self, start_ns: int, end_ns: int) -> Meetings:
        """Those that began and were complete in a stretch of time."""
        began = pl.min_horizontal(self.of("arrive_ns")) >= start_ns
        return Meetings(self.frame.filter(began & (pl.col("last_ns") <= end_ns)), self.ranks)


def find_arrivals(timeline: Timeline, trainers: Sequence[Trainer]) -> pl.DataFrame:
    """One row a collective: when each rank of this host came, and when it was done.

    | group | op | number | size_bytes | ranks | open_ns_0 | arrive_ns_0 | done_ns_0 | ... |

    From `open_ns` on a rank may have sent: gradients are sent while backward still runs. Ranks are
    columns because an hour of 64 ranks has five million arrivals at a tenth as many meetings.
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
        .rename({"a": "op", "b": "size_bytes", "c": "group", "d": "number", "e": "ranks"})
        .group_by(*KEY, "rank")
        .agg(
            pl.col("start_ns").min().alias("arrive_ns"),
            (pl.col("start_ns") + pl.col("dur_ns")).max().alias("done_ns"),
            pl.col("size_bytes").first(),
            pl.col("ranks").first(),
        )
    )
    wide = _with_backward(timeline, ranks, came).pivot(on="rank", index=KEY, values=MOMENTS)
    return _sizes([came]).join(wide, on=KEY)


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


def _sizes(arrivals: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Bytes and ranks of each collective; the largest if ranks disagree."""
    told = pl.concat([each.select(*KEY, "size_bytes", "ranks") for each in arrivals])
    return told.group_by(KEY).agg(pl.col("size_bytes", "ranks").max())


def match_meetings(hosts: Sequence[pl.DataFrame]) -> Meetings:
    """The meetings of which at least two ranks were recorded, on whatever hosts."""
    times = [each.drop("size_bytes", "ranks") for each in hosts]
    joined = reduce(lambda one, more: one.join(more, on=KEY, how="full", coalesce=True), times)
    ranks = sorted(int(found[1]) for name in joined.columns if (found := _ARRIVAL.fullmatch(name)))
    if not ranks:
        return Meetings(joined.clear(), ())
    arrivals = [pl.col(f"arrive_ns_{rank}") for rank in ranks]
    met = (
        joined.filter(pl.sum_horizontal(each.is_not_null() for each in arrivals) > 1)
        .join(_sizes(hosts), on=KEY)
        .with_columns(
            last_ns=pl.max_horizontal(arrivals),
            late=_at(pl.concat_list(each.fill_null(0) for each in arrivals).list.arg_max(), ranks),
        )
        .sort("last_ns", *KEY)
    )
    return Meetings(_with_waits(Meetings(met, tuple(ranks))), tuple(ranks))


def _at(place: pl.Expr, ranks: list[int]) -> pl.Expr:
    return place.replace_strict(dict(enumerate(ranks)), return_dtype=pl.Int32)


def _with_waits(met: Meetings) -> pl.DataFrame:
    """Add what each rank waited for the last one.

    What an earlier exchange caused by ending later on the last rank is taken off, where all ranks
    come from the same meeting and had left it: overlapping ones tell nothing.
    """
    before = met.frame.select("group", "last_ns", *met.of("arrive_ns"), *met.of("done_ns")).select(
        pl.all().exclude("group").shift(1).over("group").name.suffix("_before")
    )
    both = pl.concat([met.frame, before], how="horizontal")
    stayed = [
        (pl.col(f"done_ns_{rank}_before") - pl.col("last_ns_before")).clip(0) for rank in met.ranks
    ]
    same = pl.all_horizontal(
        pl.col(f"arrive_ns_{rank}").is_null() == pl.col(f"arrive_ns_{rank}_before").is_null()
        for rank in met.ranks
    )
    left = pl.all_horizontal(
        (pl.col(f"done_ns_{rank}_before") <= pl.col(f"arrive_ns_{rank}")).fill_null(value=True)
        for rank in met.ranks
    )
    of_last = pl.coalesce(
        pl.when(pl.col("late") == rank).then(each)
        for rank, each in zip(met.ranks, stayed, strict=True)
    )
    tells = (same & left & pl.col("last_ns_before").is_not_null()).alias("tells")
    told = both.with_columns(tells, of_last.alias("of_last"))
    waits = []
    for rank, own in zip(met.ranks, stayed, strict=True):
        done, arrive = pl.col(f"done_ns_{rank}"), pl.col(f"arrive_ns_{rank}")
        inherited = pl.when("tells").then((pl.col("of_last") - own).clip(0)).otherwise(0)
        wait = (pl.min_horizontal("last_ns", done) - arrive).clip(0) - inherited
        waits.append(pl.when(arrive.is_not_null()).then(wait.clip(0)).alias(f"wait_ns_{rank}"))
    return told.with_columns(waits).select(*met.frame.columns, *(f"wait_ns_{r}" for r in met.ranks))
