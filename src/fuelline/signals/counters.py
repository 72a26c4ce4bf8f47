"""Growth of cumulative counters inside the window: of the host, of the job's processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from fuelline.timeline import Timeline
    from fuelline.timeline.tiles import Tiling


def growth(timeline: Timeline, tiling: Tiling, name: str) -> float | None:
    """How much a host counter grew inside the window; None if it was never read by then.

    Only changes were written down, so the value at a moment is the last one before it.
    """
    rows = timeline.table("host").filter(pl.col("name") == name).sort("at_ns")
    if not rows.height:
        return None
    before = rows.filter(pl.col("at_ns") <= tiling.start_ns)["value"]
    inside = rows.filter(pl.col("at_ns") <= tiling.end_ns)["value"]
    if not inside.len():
        return None
    first = before[-1] if before.len() else rows["value"][0]
    return max(0.0, float(inside[-1]) - float(first))


def latest(timeline: Timeline, name: str) -> float | None:
    """The last value of a host gauge; None if it was never read."""
    rows = timeline.table("host").filter(pl.col("name") == name).sort("at_ns")
    return float(rows["value"][-1]) if rows.height else None


def process_growth(timeline: Timeline, tiling: Tiling, column: str) -> float | None:
    """How much a counter grew over all processes of the job; None if the kernel refused it.

    Per process the growth between its first and last row inside the window: a worker that lived
    shorter than two samples is not seen here.
    """
    rows = timeline.table("processes").filter(
        pl.col("at_ns").is_between(tiling.start_ns, tiling.end_ns) & (pl.col(column) >= 0)
    )
    if not rows.height:
        return None
    grown = (
        rows.sort("at_ns")
        .group_by("pid")
        .agg((pl.col(column).last() - pl.col(column).first()).alias("n"))
    )
    return float(grown["n"].sum())


def sampled_seconds(timeline: Timeline, tiling: Tiling) -> float:
    """Time between the first and the last process sample inside the window."""
    rows = timeline.table("processes").filter(
        pl.col("at_ns").is_between(tiling.start_ns, tiling.end_ns)
    )
    if not rows.height:
        return 0.0
    return float(rows["at_ns"].max() - rows["at_ns"].min()) / 1e9  # type: ignore[operator, arg-type]
