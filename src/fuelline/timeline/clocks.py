"""Clocks of several hosts: how each must be shifted, and how far off that may be.

Wall clocks give a first guess. Collectives give a bound: nobody leaves one before everybody has
arrived, so whoever left in one host's time had seen the others' arrivals in theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from fuelline.schema.wire import Collective
from fuelline.timeline.collectives import KEY

_WAITS_FOR_ALL = [
    int(op)
    for op in (
        Collective.ALL_REDUCE,
        Collective.ALL_GATHER,
        Collective.REDUCE_SCATTER,
        Collective.ALL_TO_ALL,
        Collective.BARRIER,
        Collective.GRADIENTS,
    )
]
"""Nobody leaves these before everybody has come; the sender of a broadcast may."""


@dataclass(frozen=True)
class Offset:
    """What to add to a host's clock, and how far off that may be; None if nothing bounds it."""

    shift_ns: int
    error_ns: int | None


def find_offset(ours: pl.DataFrame, theirs: pl.DataFrame, guess_ns: int) -> Offset:
    """How the clock of their arrivals must be shifted to agree with that of ours."""
    if not _has_ranks(ours) or not _has_ranks(theirs):
        return Offset(guess_ns, None)
    bounds = (
        _sides(ours)
        .join(_sides(theirs), on=KEY, suffix="_theirs")
        .select(
            low=pl.col("arrive") - pl.col("done_theirs"),
            high=pl.col("done") - pl.col("arrive_theirs"),
        )
    )
    if not bounds.height:
        return Offset(guess_ns, None)
    low, high = int(bounds["low"].max()), int(bounds["high"].min())  # type: ignore[arg-type]
    if low <= high:
        return Offset((low + high) // 2, (high - low + 1) // 2)
    # Clocks that drift allow nothing in common: the middle, and as far off as it went.
    middles = (bounds["low"] + bounds["high"]) / 2
    return Offset(int(middles.median()), int(middles.max() - middles.min()))


def _sides(arrivals: pl.DataFrame) -> pl.DataFrame:
    """The last arrival and the first departure of one host at each collective."""
    return arrivals.filter(pl.col("op").is_in(_WAITS_FOR_ALL)).select(
        *KEY,
        pl.max_horizontal(pl.col("^arrive_ns_.*$")).alias("arrive"),
        pl.min_horizontal(pl.col("^done_ns_.*$")).alias("done"),
    )


def _has_ranks(arrivals: pl.DataFrame) -> bool:
    return any(name.startswith("arrive_ns_") for name in arrivals.columns)
