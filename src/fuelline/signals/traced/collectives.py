"""Collectives matched across ranks: who came when, who waited, whose clock is off.

Group and sequence match them where the trace has both. Otherwise the n-th kernel of one name does,
and ranks belong to one group if they leave together. What a collective takes on the rank where it
takes least is the transfer; what it takes longer elsewhere is waiting for a peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.trace import DeviceKind, RankClock
from fuelline.signals.traced.kernels.lane import COMPUTE
from fuelline.signals.traced.kernels.names import COMMUNICATION
from fuelline.timeline.collectives import KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.signals.traced.kernels.lane import DeviceLane

_TOGETHER_NS = 100_000
"""Ranks of one collective leave within this of each other: some tens of microseconds are usual,
clocks of one host agree to that, and a rank of another group is off by a kernel's length."""
_TOGETHER_SHARE = 0.1
"""Long ones may leave this much of their length apart."""
_EMPTY = {
    "rank": pl.Int64,
    "row": pl.UInt32,
    "device": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "op": pl.String,
    "group": pl.Int64,
    "number": pl.Int64,
}


@dataclass(frozen=True)
class TracedCollectives:
    """One row per rank and collective, on the first rank's clock.

    | rank | row | device | start_ns | end_ns | op | group | number | shortest_ns | wait_ns | ...

    `row` is the event's place in its lane, `op` the kernel's name, `shortest_ns` the least that it
    took on any rank, `last` the rank that came last.
    """

    frame: pl.DataFrame
    clocks: list[RankClock]
    offsets_ns: Mapping[int, int]
    """What was added to each rank's own times."""

    @property
    def count(self) -> int:
        """Collectives, not rows."""
        return self.frame.select(KEY).unique().height


def match_collectives(lanes: Sequence[DeviceLane]) -> TracedCollectives:
    """Match all communication of these ranks."""
    came = pl.concat([pl.DataFrame(schema=_EMPTY), *(_arrivals(lane) for lane in lanes)])
    if came["rank"].n_unique() < 2:
        return TracedCollectives(_judge(came.clear()), [], {})
    matched = _match(came, lanes)
    guesses = _guess_shifts(came, matched)
    if guesses:
        matched = _match(_shifted(came, guesses), lanes)
    clocks = [
        RankClock(
            rank=clock.rank,
            shift_ns=clock.shift_ns + guesses.get(clock.rank, 0),
            error_ns=clock.error_ns,
        )
        for clock in _align(matched)
    ]
    refined = {clock.rank: clock.shift_ns - guesses.get(clock.rank, 0) for clock in clocks}
    shifts = {clock.rank: clock.shift_ns for clock in clocks}
    offsets = {lane.rank: lane.facts.origin_ns + shifts.get(lane.rank, 0) for lane in lanes}
    return TracedCollectives(_judge(_shifted(matched, refined)), clocks, offsets)


def _match(came: pl.DataFrame, lanes: Sequence[DeviceLane]) -> pl.DataFrame:
    matched = _by_sequence(came, lanes)
    rest = came.join(matched, on=("rank", "row"), how="anti")
    return pl.concat([matched, _by_order(rest)])


def _shifted(came: pl.DataFrame, shifts: Mapping[int, int]) -> pl.DataFrame:
    shift = pl.col("rank").replace_strict(shifts, default=0, return_dtype=pl.Int64)
    return came.with_columns(pl.col("start_ns", "end_ns") + shift)


def _guess_shifts(came: pl.DataFrame, matched: pl.DataFrame) -> dict[int, int]:
    """Clocks of ranks that met nobody: perhaps they leave together, only by another clock.

    Then their ends differ from the first rank's by nearly the same every time.
    """
    ranks = sorted(came["rank"].unique().to_list())
    alone = sorted(set(ranks) - set(matched["rank"].to_list()))
    first = next((rank for rank in ranks if rank not in alone), ranks[0])
    numbered = _numbered(came)
    found = {}
    for rank in (each for each in alone if each != first):
        both = numbered.filter(pl.col("rank") == first).join(
            numbered.filter(pl.col("rank") == rank), on=("op", "times", "number"), suffix="_too"
        )
        apart = both["end_ns"] - both["end_ns_too"]
        usual = float(apart.median() or 0.0)
        if both.height >= _FEWEST and float((apart - usual).abs().median() or 0.0) <= _TOGETHER_NS:
            found[rank] = round(usual)
    return found


def _arrivals(lane: DeviceLane) -> pl.DataFrame:
    return (
        lane.events.with_row_index("row")
        .filter(pl.col("family") == COMMUNICATION)
        .select(
            pl.lit(lane.rank, pl.Int64).alias("rank"),
            "row",
            "device",
            pl.col("start_ns", "end_ns") + lane.facts.origin_ns,
            pl.col("text").cast(pl.String).alias("op"),  # every lane has names of its own
            pl.lit(None, pl.Int64).alias("group"),
            pl.lit(None, pl.Int64).alias("number"),
        )
    )


def _by_sequence(came: pl.DataFrame, lanes: Sequence[DeviceLane]) -> pl.DataFrame:
    """Those whose group and place in it were recorded."""
    known = [
        lane.events.with_row_index("row")
        .filter(pl.col("sequence").is_not_null() & pl.col("group_text").is_not_null())
        .select(
            pl.lit(lane.rank, pl.Int64).alias("rank"),
            "row",
            pl.col("group_text").cast(pl.String),
            "sequence",
        )
        for lane in lanes
    ]
    found = came.drop("group", "number").join(pl.concat(known), on=("rank", "row"))
    return _met(
        found.with_columns(
            pl.col("group_text").rank("dense").cast(pl.Int64).alias("group"),
            pl.col("sequence").alias("number"),
        ).select(_EMPTY.keys())
    )


def _by_order(came: pl.DataFrame) -> pl.DataFrame:
    """The n-th of each name, among ranks that have equally many of it and leave together."""
    found = [
        _in_groups(same)
        for same in _numbered(came).partition_by("op", "times", maintain_order=True)
        if same["rank"].n_unique() > 1
    ]
    return _met(pl.concat([came.clear(), *(each.select(_EMPTY.keys()) for each in found)]))


def _numbered(came: pl.DataFrame) -> pl.DataFrame:
    """With `number`, the place of an event among those of its rank and name, and their `times`."""
    return came.sort("rank", "start_ns").with_columns(
        pl.int_range(pl.len()).over("rank", "op").alias("number"),
        pl.len().over("rank", "op").alias("times"),
    )


def _in_groups(same: pl.DataFrame) -> pl.DataFrame:
    """Give ranks that leave together the same `group`."""
    ends = same.pivot("rank", index="number", values="end_ns")
    lengths = same.group_by("number").agg((pl.col("end_ns") - pl.col("start_ns")).min())
    usual = float(lengths["end_ns"].median() or 0.0)  # type: ignore[arg-type]
    tolerance = max(_TOGETHER_NS, _TOGETHER_SHARE * usual)
    ranks = [int(name) for name in ends.columns if name != "number"]
    group: dict[int, int] = {}
    for rank in ranks:
        leaders = dict.fromkeys(group.values())
        near = (lead for lead in leaders if _apart(ends, rank, lead) <= tolerance)
        group[rank] = next(near, rank)
    return same.with_columns(
        pl.col("rank").replace_strict(group, return_dtype=pl.Int64).alias("group")
    )


def _apart(ends: pl.DataFrame, one: int, other: int) -> float:
    """How far apart two ranks usually leave."""
    gaps = (ends[str(one)] - ends[str(other)]).abs()
    return float(gaps.median() or 0.0)


def _met(frame: pl.DataFrame) -> pl.DataFrame:
    """Only where more than one rank came, and each of them once."""
    ranks = pl.col("rank").n_unique().over(KEY)
    return frame.filter((ranks > 1) & (pl.len().over(KEY) == ranks))


def _align(matched: pl.DataFrame) -> list[RankClock]:
    """Shift a rank's clock if it contradicts that nobody leaves before everybody has come."""
    ranks = sorted(matched["rank"].unique().to_list())
    if not ranks:
        return []
    first = matched.filter(pl.col("rank") == ranks[0])
    clocks = [RankClock(rank=ranks[0], shift_ns=0, error_ns=0)]
    for rank in ranks[1:]:
        both = first.join(matched.filter(pl.col("rank") == rank), on=KEY, suffix="_too")
        clocks.append(_bound(rank, both))
    return clocks


def _bound(rank: int, both: pl.DataFrame) -> RankClock:
    if not both.height:
        return RankClock(rank=rank, shift_ns=0, error_ns=None)
    low = int((both["start_ns"] - both["end_ns_too"]).max())
    high = int((both["end_ns"] - both["start_ns_too"]).min())
    if low <= 0 <= high:
        return RankClock(rank=rank, shift_ns=0, error_ns=max(-low, high))
    usual = int((both["end_ns"] - both["end_ns_too"]).median())
    shift = min(max(usual, low), high) if low <= high else usual
    return RankClock(rank=rank, shift_ns=shift, error_ns=max(abs(high - shift), abs(shift - low)))


def _judge(matched: pl.DataFrame) -> pl.DataFrame:
    took = pl.col("end_ns") - pl.col("start_ns")
    latest = pl.col("rank").sort_by(-pl.col("start_ns"), pl.col("rank")).first()
    return matched.with_columns(took.min().over(KEY).alias("shortest_ns")).with_columns(
        (took - pl.col("shortest_ns")).alias("wait_ns"), latest.over(KEY).alias("last")
    )


def find_communicating(lanes: Sequence[DeviceLane]) -> set[str]:
    """Kernels that behave like collectives: ranks leave them together however early they came.

    Asked of those that may be one by their names: a product or a normalisation lasts as long as its
    work does.
    """
    doubtful = pl.concat(
        [
            lane.events.filter(_MAY_COMMUNICATE).select(
                pl.lit(lane.rank).alias("rank"),
                pl.col("text").cast(pl.String).alias("op"),
                pl.col("start_ns", "end_ns") + lane.facts.origin_ns,
            )
            for lane in lanes
        ]
    )
    spread = (
        _numbered(doubtful)
        .group_by("op", "times", "number")
        .agg(
            pl.col("rank").n_unique().alias("ranks"),
            (pl.col("start_ns").max() - pl.col("start_ns").min()).alias("came_ns"),
            (pl.col("end_ns").max() - pl.col("end_ns").min()).alias("left_ns"),
        )
        .group_by("op", "times")
        .agg(pl.col("ranks").min(), pl.col("came_ns", "left_ns").median())
    )
    found = spread.filter(
        (pl.col("ranks") == len(lanes))
        & (pl.col("times") >= _FEWEST)
        & (pl.col("came_ns") >= _TOGETHER_NS)
        & (pl.col("left_ns") * _GATHERED <= pl.col("came_ns"))
    )
    return set(found["op"].to_list()) if len(lanes) > 1 else set()


_MAY_COMMUNICATE = pl.col("class").is_in(["other", "reduce", "copy", "embedding"]) & (
    pl.col("family") == COMPUTE
)
_FEWEST = 4
"""Fewer of a kernel may leave together by chance."""
_GATHERED = 4.0
"""They leave this many times closer together than they came; compute leaves as it came."""


def find_apart(lane: DeviceLane) -> set[str]:
    """Kernels without a telling name that wait for others, as one rank alone shows it.

    Where other streams compute, a stream without any known computation is not the model's. What
    runs there is communication if kernels with the name of a library do, too, or if it spins:
    the same grid lasts several times as long at one time as at another.
    """
    kernels = lane.events.filter(pl.col("kind") == int(DeviceKind.KERNEL))
    is_telling = (pl.col("family") == COMPUTE) & (pl.col("class") != "other")
    streams = kernels.group_by("device", "stream").agg(
        is_telling.any().alias("computes"),
        (pl.col("family") == COMMUNICATION).any().alias("talks"),
    )
    beside = streams.filter(pl.col("computes").any().over("device") & ~pl.col("computes"))
    if not beside.height:
        return set()
    unknown = kernels.filter(pl.col("class") == "other").with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("took_ns")
    )
    found = (
        unknown.join(beside, on=("device", "stream"), how="left")
        .group_by("text", "blocks")
        .agg(
            pl.col("talks").is_not_null().all().alias("apart"),
            pl.col("talks").all(),
            pl.len().alias("times"),
            pl.col("took_ns").quantile(0.9, "nearest").alias("long_ns"),
            pl.col("took_ns").quantile(0.1, "nearest").alias("short_ns"),
        )
    )
    spins = (
        (pl.col("times") >= 2 * _FEWEST)
        & (pl.col("long_ns") >= _GATHERED * pl.col("short_ns"))
        & (pl.col("long_ns") >= _TOGETHER_NS)
    )
    told = found.group_by("text").agg(
        pl.col("apart").all(), pl.col("talks").all(), spins.any().alias("spins")
    )
    speaks = pl.col("apart") & (pl.col("talks") | pl.col("spins"))
    return set(told.filter(speaks)["text"].cast(pl.String).to_list())
