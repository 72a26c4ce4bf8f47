"""Collectives matched across ranks, with who came when. Pure lookups, no verdict.

A collective has the same group, kind and number on every rank. What counts is the *arrival*: the
durations of a phase are made equal by the collective that ends it. A rank that arrives before the
last one waits for it; what remains after the last arrival is the exchange itself. An exchange may
end later on one rank than on another (the sender of a broadcast is done at once); a rank that is
late by that at the next collective is not waited for, the exchange is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.wire import Collective, Kind, MarkPlace
from fuelline.timeline import events
from fuelline.timeline.device_marks import align_marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fuelline.timeline.timeline import Timeline
    from fuelline.timeline.trainer import Trainer

KEY = ("group", "op", "number")
"""What a collective has in common on all ranks, recorded or traced: who takes part, what they do
(in traces, the kernel's name), and its place among those."""
MOMENTS = ("open_ns", "arrive_ns", "done_ns")
_BESIDE_NS = 100_000
"""A mark beside a call was put so shortly before or after it."""
_NOBODY = dict.fromkeys((*KEY, "size_bytes", "ranks"), pl.Int64())
_ARRIVAL = re.compile(r"arrive_ns_(\d+)")


@dataclass(frozen=True)
class MatchedCollectives:
    """One row a collective, in the order of last arrivals; columns with a rank at their end.

    | group | op | number | size_bytes | ranks | last_ns | late | arrive_ns_0 | done_ns_0 | ... |

    `late` is the rank that came last, `wait_ns_N` what rank N waited for it, less what the exchange
    before took longer on the last one. A rank that took no part has nulls.
    """

    frame: pl.DataFrame
    ranks: tuple[int, ...]

    def of(self, name: str) -> list[pl.Expr]:
        """One of a collective's columns, for every rank."""
        return [pl.col(f"{name}_{rank}") for rank in self.ranks]

    def within(self, start_ns: int, end_ns: int) -> MatchedCollectives:
        """Those that began and were complete in a stretch of time."""
        began = pl.min_horizontal(self.of("arrive_ns")) >= start_ns
        return MatchedCollectives(
            self.frame.filter(began & (pl.col("last_ns") <= end_ns)), self.ranks
        )


def find_arrivals(timeline: Timeline, trainers: Sequence[Trainer]) -> pl.DataFrame:
    """One row a collective: when each rank of this host came, and when it was done.

    | group | op | number | size_bytes | ranks | open_ns_0 | arrive_ns_0 | done_ns_0 | ... |

    From `open_ns` on a rank may have sent: gradients are sent while backward still runs. Ranks are
    columns because an hour of 64 ranks has five million arrivals at a tenth as many collectives.
    """
    # One rank at a time: what is needed on the way is several times what is left of it.
    pids: dict[int, list[int]] = {}
    for trainer in trainers:
        if trainer.rank is not None:
            pids.setdefault(trainer.rank, []).append(trainer.pid)
    return _join(
        came.select(*KEY, "size_bytes", "ranks", pl.col(MOMENTS).name.suffix(f"_{rank}"))
        for rank in sorted(pids)
        if (came := _arrivals_of(timeline, pids[rank])).height
    )


def _arrivals_of(timeline: Timeline, pids: list[int]) -> pl.DataFrame:
    """One row a collective of one rank, in the order of its arrivals; restarted, it is others."""
    theirs = pl.col("pid").is_in(pids) & events.has_succeeded()
    calls, waits = (
        read(timeline, theirs)
        .filter(pl.col("number") >= 0)
        .select("pid", *KEY, "size_bytes", "ranks", arrive_ns="start_ns", done_ns="end_ns")
        for read in (events.collectives, events.collective_waits)
    )
    came = _with_waits_for_handles(calls, waits).sort("arrive_ns")
    marked = set(timeline.table("events").filter(pl.col("kind") == Kind.MARK)["pid"].unique())
    queueing = [
        each.pid
        for each in timeline.processes
        if each.pid in pids and each.queues and (each.pid in marked or not each.may_wait)
    ]
    if queueing:
        came = pl.concat(
            [
                came.filter(~pl.col("pid").is_in(queueing)),
                *(_on_device(timeline, came.filter(pl.col("pid") == pid), pid) for pid in queueing),
            ]
        )
    return _with_backward(timeline, pids, came.drop("pid"))


def _on_device(timeline: Timeline, came: pl.DataFrame, pid: int) -> pl.DataFrame:
    """The same by the device's clock, where its calls only put work into the device's queue.

    The mark before a call says when the device came to it, the one after it when it went on.
    Without both of them nothing is known of that collective.
    """
    marks = align_marks(timeline, pl.col("pid") == pid)
    if not marks.height:
        return came.clear()
    passed = marks.select("start_ns", passed_ns=pl.col("start_ns") + pl.col("lead_ns"))
    ends = marks.filter(pl.col("place") == MarkPlace.COLLECTIVE_END)
    left = ends.select("start_ns", left_ns=pl.col("start_ns") + pl.col("lead_ns"))
    return (
        came.join_asof(passed, left_on="arrive_ns", right_on="start_ns", tolerance=_BESIDE_NS)
        .drop("start_ns", strict=False)
        .sort("done_ns")
        .join_asof(
            left, left_on="done_ns", right_on="start_ns", strategy="forward", tolerance=_BESIDE_NS
        )
        .filter(pl.col("passed_ns").is_not_null() & pl.col("left_ns").is_not_null())
        .with_columns(arrive_ns="passed_ns", done_ns=pl.max_horizontal("left_ns", "passed_ns"))
        .select(came.columns)
        .sort("arrive_ns")
    )


def _with_waits_for_handles(came: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Collectives, asynchronous ones done when their handle had been waited for."""
    if not waits.height:
        return came
    ends = waits.group_by(*KEY).agg(waited_ns=pl.col("done_ns").max())
    return came.join(ends, on=KEY, how="left").with_columns(
        done_ns=pl.max_horizontal("done_ns", "waited_ns")
    )


def _join(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Side by side by collective; of sizes, the largest if ranks disagree."""
    found = list(frames)
    if not found:
        return pl.DataFrame(schema=_NOBODY)
    return reduce(_join_two, found)


def _join_two(one: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    both = one.join(more, on=KEY, how="full", coalesce=True, suffix="_more")
    return both.with_columns(
        pl.max_horizontal(name, f"{name}_more").alias(name) for name in ("size_bytes", "ranks")
    ).drop("size_bytes_more", "ranks_more")


def _with_backward(timeline: Timeline, pids: list[int], came: pl.DataFrame) -> pl.DataFrame:
    passes = events.backward_passes(timeline, pl.col("pid").is_in(pids))
    backward = passes.select(backward_ns="start_ns").sort("backward_ns")
    open_ns = (
        pl.when(pl.col("op") == int(Collective.GRADIENTS))
        .then(pl.coalesce("backward_ns", "arrive_ns"))
        .otherwise("arrive_ns")
    )
    return (
        came.sort("arrive_ns")
        .join_asof(backward, left_on="arrive_ns", right_on="backward_ns")
        .with_columns(open_ns=open_ns)
    )


def match_collectives(hosts: Sequence[pl.DataFrame]) -> MatchedCollectives:
    """The collectives of which at least two ranks were recorded, on whatever hosts."""
    joined = _join(hosts)
    ranks = sorted(int(found[1]) for name in joined.columns if (found := _ARRIVAL.fullmatch(name)))
    if not ranks:
        return MatchedCollectives(joined.clear(), ())
    arrivals = [pl.col(f"arrive_ns_{rank}") for rank in ranks]
    matched = (
        joined.filter(pl.sum_horizontal(each.is_not_null() for each in arrivals) > 1)
        .with_columns(
            last_ns=pl.max_horizontal(arrivals),
            late=_at(pl.concat_list(each.fill_null(0) for each in arrivals).list.arg_max(), ranks),
        )
        .sort("last_ns", *KEY)
    )
    return MatchedCollectives(_with_waits(MatchedCollectives(matched, tuple(ranks))), tuple(ranks))


def _at(place: pl.Expr, ranks: list[int]) -> pl.Expr:
    return place.replace_strict(dict(enumerate(ranks)), return_dtype=pl.Int32)


def _with_waits(matched: MatchedCollectives) -> pl.DataFrame:
    """Add what each rank waited for the last one.

    What an earlier exchange caused by ending later on the last rank is taken off, where all ranks
    come from the same collective and had left it: overlapping ones tell nothing.
    """
    before = matched.frame.select(
        "group", "last_ns", *matched.of("arrive_ns"), *matched.of("done_ns")
    ).select(pl.all().exclude("group").shift(1).over("group").name.suffix("_before"))
    both = pl.concat([matched.frame, before], how="horizontal")
    stayed = [
        (pl.col(f"done_ns_{rank}_before") - pl.col("last_ns_before")).clip(0)
        for rank in matched.ranks
    ]
    same = pl.all_horizontal(
        pl.col(f"arrive_ns_{rank}").is_null() == pl.col(f"arrive_ns_{rank}_before").is_null()
        for rank in matched.ranks
    )
    left = pl.all_horizontal(
        (pl.col(f"done_ns_{rank}_before") <= pl.col(f"arrive_ns_{rank}")).fill_null(value=True)
        for rank in matched.ranks
    )
    of_last = pl.coalesce(
        pl.when(pl.col("late") == rank).then(each)
        for rank, each in zip(matched.ranks, stayed, strict=True)
    )
    tells = (same & left & pl.col("last_ns_before").is_not_null()).alias("tells")
    told = both.with_columns(tells, of_last.alias("of_last"))
    waits = []
    for rank, own in zip(matched.ranks, stayed, strict=True):
        done, arrive = pl.col(f"done_ns_{rank}"), pl.col(f"arrive_ns_{rank}")
        inherited = pl.when("tells").then((pl.col("of_last") - own).clip(0)).otherwise(0)
        wait = (pl.min_horizontal("last_ns", done) - arrive).clip(0) - inherited
        waits.append(pl.when(arrive.is_not_null()).then(wait.clip(0)).alias(f"wait_ns_{rank}"))
    return told.with_columns(waits).select(
        *matched.frame.columns, *(f"wait_ns_{r}" for r in matched.ranks)
    )
