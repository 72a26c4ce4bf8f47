"""Numbers with their doubt: intervals from batch means and from counts."""

from __future__ import annotations

import math

import polars as pl

from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.student import DEVIATIONS, find_t

_BLOCKS = 10
"""Batch means over ten blocks of consecutive steps: neighbours are correlated, blocks hardly."""
_Z_95 = DEVIATIONS[95]
_ROUNDING = 1e-9
"""Counts that were added up in parts may exceed their sum by as much."""


def ratio(parts: pl.Series, wholes: pl.Series, unit: str, origin: str) -> Signal:
    """Sum of parts over sum of wholes, with a batch-means interval when there are enough rows."""
    total = float(wholes.sum())
    if total <= 0:
        return Missing(reason=f"{origin}: nothing to divide by")
    value = float(parts.sum()) / total
    count = parts.len()
    if count < 2 * _BLOCKS:
        return Reading(value=value, unit=unit, count=count, origin=origin)
    block = pl.int_range(count, eager=True) * _BLOCKS // count
    blocks = (
        pl.DataFrame({"part": parts, "whole": wholes, "block": block})
        .group_by("block", maintain_order=True)
        .agg(pl.col("part").sum(), pl.col("whole").sum())
        .filter(pl.col("whole") > 0)
    )
    spread = float((blocks["part"] / blocks["whole"]).std() or 0.0)  # type: ignore[arg-type]
    half = find_t(_BLOCKS - 1) * spread / math.sqrt(blocks.height)
    return Reading(
        value=value,
        unit=unit,
        low=max(0.0, value - half),
        high=value + half,
        level=95,
        count=count,
        origin=origin,
    )


def proportion(hits: float, total: float, origin: str) -> Signal:
    """A share of samples, with the Wilson interval."""
    if total <= 0:
        return Missing(reason=f"{origin}: no samples")
    share = hits / total
    if not 0 <= share <= 1 + _ROUNDING:
        return Missing(reason=f"{origin}: {hits:g} of {total:g} samples, which cannot be")
    share = min(share, 1.0)
    centre = (share + _Z_95**2 / (2 * total)) / (1 + _Z_95**2 / total)
    half = (
        _Z_95
        * math.sqrt(share * (1 - share) / total + _Z_95**2 / (4 * total**2))
        / (1 + _Z_95**2 / total)
    )
    return Reading(
        value=share,
        unit="frac",
        low=min(share, max(0.0, centre - half)),
        high=max(share, min(1.0, centre + half)),
        level=95,
        count=int(total),
        origin=origin,
    )


def total(value: float, unit: str, origin: str, count: int | None = None) -> Reading:
    """A plain total or mean without doubt of its own."""
    return Reading(value=value, unit=unit, origin=origin, count=count)


def slope(x: pl.Series, y: pl.Series) -> tuple[float, float] | None:
    """Least squares slope of y on x and its standard error; None without spread or rows."""
    count = x.len()
    if count < 5:
        return None
    dx = x - x.mean()
    dy = y - y.mean()
    spread = float((dx * dx).sum())
    if spread <= 0:
        return None
    steepness = float((dx * dy).sum()) / spread
    residual = dy - dx * steepness
    error = math.sqrt(float((residual * residual).sum()) / (count - 2) / spread)
    return steepness, error
