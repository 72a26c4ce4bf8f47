"""Who is late at the collectives, and what that rank was doing while the others waited.

A victim's wait leads to the rank that came last; the time from the first arrival to that rank's own
is looked up in its account: computing, copying, waiting elsewhere, or idle for a cause of its host.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.schema.diagnosis.findings import LateRank
from fuelline.schema.run.trace import BlameLink
from fuelline.schema.units import percent
from fuelline.timeline.collectives import KEY
from fuelline.timeline.intervals import intersect, merge, total_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.diagnosis.findings import Limit, Stage
    from fuelline.schema.parts import Activity, IdleCause, LedgerPart
    from fuelline.signals.traced.collectives import TracedCollectives
    from fuelline.signals.traced.ledger import Account

    _Doing = IdleCause | Activity

_CLEARLY = 0.6
"""Of two ranks, one must cause this share of the waiting; of more, twice its share of it."""
_SIGMAS = 2.5
"""How far above its share a rank must come last, in standard deviations of a fair draw."""
_DOING: Mapping[LedgerPart, Activity] = {
    "useful compute": "computing longer than the others",
    "copies": "copying",
    "exposed transfer": "in another collective",
    "waiting for a peer": "waiting at another collective",
    "undivided communication": "in another collective",
}
_STAGES: Mapping[_Doing, tuple[Stage, Limit]] = {
    "data loader": ("transform", "parallelism"),
    "kernel launches": ("compute", "launch"),
    "operators": ("compute", "launch"),
    "python": ("compute", "launch"),
    "python between steps": ("pause", "code"),
    "launch latency": ("compute", "launch"),
    "synchronise": ("pause", "code"),
    "allocator": ("pause", "memory"),
    "start-up": ("pause", "code"),
    "one-off": ("pause", "code"),
    "garbage collection": ("pause", "code"),
    "memcpy": ("transfer", "bandwidth"),
    "copying": ("transfer", "bandwidth"),
    "computing longer than the others": ("compute", "imbalance"),
}


def find_culprits(matched: TracedCollectives, accounts: Mapping[int, Account]) -> list[LateRank]:
    """Ranks that clearly make the others wait, the costliest first."""
    lates = _lates(matched)
    everything = float(lates["caused_ns"].sum())
    ranks = matched.frame["rank"].n_unique()
    if everything <= 0 or ranks < 2:
        return []
    limit = _CLEARLY if ranks == 2 else min(_CLEARLY, 2 / ranks)
    found = []
    by_rank = lates.group_by("last").agg(pl.len().alias("times"), pl.col("caused_ns").sum())
    for rank, times, caused_ns in by_rank.sort("caused_ns", descending=True).iter_rows():
        if caused_ns / everything >= limit and _is_no_chance(times, lates.height, ranks):
            offset = matched.offsets_ns.get(rank, 0)
            mine = lates.filter(pl.col("last") == rank).with_columns(
                pl.col("first_ns", "last_ns") - offset
            )
            found.append(_late(rank, mine, lates.height, accounts.get(rank)))
    return found


def _lates(matched: TracedCollectives) -> pl.DataFrame:
    """| last | caused_ns | first_ns | last_ns |: one row per collective."""
    return (
        matched.frame.group_by(KEY, maintain_order=True)
        .agg(
            pl.col("last").first(),
            pl.col("wait_ns").filter(pl.col("rank") != pl.col("last")).sum().alias("caused_ns"),
            pl.col("start_ns").min().alias("first_ns"),
            pl.col("start_ns").max().alias("last_ns"),
        )
        .select("last", "caused_ns", "first_ns", "last_ns")
    )


def _is_no_chance(times: int, of: int, ranks: int) -> bool:
    fair = 1 / ranks
    return times - of * fair >= _SIGMAS * math.sqrt(of * fair * (1 - fair))


def _late(rank: int, mine: pl.DataFrame, of: int, account: Account | None) -> LateRank:
    doing = _doings(account, mine) if account is not None else {}
    top = max(doing, key=lambda name: doing[name], default=None)
    stage, limit = (None, None) if top is None else _STAGES.get(top, (None, None))
    return LateRank(
        rank=rank,
        late_count=mine.height,
        of=of,
        caused_wait_seconds=int(mine["caused_ns"].sum()) / 1e9,
        because=_because(doing, top),
        stage=stage,
        limit=limit,
        part=top or "",
    )


def _because(doing: Mapping[_Doing, int], top: _Doing | None) -> str:
    if top is None:
        return "what it did before is not in the trace"
    whole = sum(doing.values())
    host = {cause: spent for cause, spent in doing.items() if cause not in _DOING.values()}
    if top in host and sum(host.values()) >= whole / 2:
        kinds = sorted(host, key=lambda cause: -host[cause])[:2]
        words = " and ".join(f"{kind} {percent(host[kind] / whole)}" for kind in kinds)
        return (
            f"its device is idle for {percent(sum(host.values()) / whole)} of the time that the "
            f"others wait for it, because its host is late ({words})"
        )
    return f"{percent(doing[top] / whole)} of the time that the others wait for it, it is {top}"


def _doings(account: Account, mine: pl.DataFrame) -> dict[_Doing, int]:
    """What a device did in the stretches that ended with its late arrivals, in nanoseconds."""
    stretches = merge(
        mine.select(pl.col("first_ns").alias("start_ns"), pl.col("last_ns").alias("end_ns"))
    )
    found: dict[_Doing, int] = {}
    for frame, column in ((account.pieces, "part"), (account.gaps.pieces, "cause")):
        for key, same in frame.partition_by(column, as_dict=True).items():
            spent = total_ns(intersect(merge(same), stretches))
            if spent:
                name = _DOING.get(key[0], key[0])
                found[name] = found.get(name, 0) + spent
    return found


def chain_blame(
    culprits: Sequence[LateRank], during: Mapping[int, Mapping[Any, str]]
) -> list[BlameLink]:
    """The culprits as links of a chain: whose wait, which rank, doing what, under what."""
    return [
        BlameLink(
            rank=late.rank,
            doing=late.part,
            during=during.get(late.rank, {}).get(late.part, ""),
            caused_wait_seconds=late.caused_wait_seconds,
            collectives=late.late_count,
        )
        for late in culprits
    ]
