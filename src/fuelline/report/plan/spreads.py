"""A way to cut a model over chips, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.schema.plan.estimates import Parallelism


def spread_words(spread: Parallelism) -> str:
    """`tp 4, pp 2`."""
    return spread.words


def brief_words(spread: Parallelism) -> str:
    """`tp4 pp2`, for a narrow column."""
    words = spread.words
    return words if words == "one chip" else words.replace(" ", "").replace(",", " ")
