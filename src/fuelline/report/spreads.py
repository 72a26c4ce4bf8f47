"""A way to cut a model over chips, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.schema.plans import Parallelism


def spread_words(spread: Parallelism) -> str:
    """`tp 4, pp 2`."""
    parts = [f"{name} {value}" for name, value in _degrees(spread) if value > 1]
    return ", ".join(parts) or "one chip"


def brief_words(spread: Parallelism) -> str:
    """`tp4 pp2`, for a narrow column."""
    parts = [f"{name}{value}" for name, value in _degrees(spread) if value > 1]
    return " ".join(parts) or "one chip"


def _degrees(spread: Parallelism) -> tuple[tuple[str, int], ...]:
    return (
        ("tp", spread.tp),
        ("pp", spread.pp),
        ("dp", spread.dp),
        ("ep", spread.ep),
        ("cp", spread.cp),
    )
