"""Round numbers along an axis: where a grid line stands, and what is written beside it.

All ticks lie inside the axis. A logarithmic axis has one, two and five times powers of ten, over
many decades the powers alone; a short one even steps: the first that is not too many. Counted
things have no fractions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.report.renderers.charts import Axis

_LEAST = 3
_LETTERS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_STEPS = (1.0, 2.0, 2.5, 5.0)
_SLACK = 1e-9


def make_ticks(axis: Axis, most: int) -> list[float]:
    """At most this many round numbers between the ends; the ends themselves where none fits."""
    for found in _candidates(axis.low, axis.high, most, log=axis.log):
        ticks = [tick for tick in found if axis.share(tick) is not None]
        fractions = axis.whole and any(tick != int(tick) for tick in ticks)
        if _LEAST <= len(ticks) <= most and not fractions:
            return ticks
    return [axis.low, axis.high]


def _candidates(low: float, high: float, most: int, *, log: bool) -> Iterator[list[float]]:
    if log:
        for multiples in ((1.0, 2.0, 5.0), (1.0, 3.0)):
            yield _decades(low, high, multiples)
        for stride in (1, 2, 3, 4):
            yield _decades(low, high, (1.0,), stride)
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (power * each * ten for ten in (1, 10) for each in _STEPS):
        yield _even(low, high, step)


def _decades(low: float, high: float, multiples: tuple[float, ...], stride: int = 1) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [10.0**power * each for power in range(first, last + 1, stride) for each in multiples]
    return [tick for tick in ticks if low * (1 - _SLACK) <= tick <= high * (1 + _SLACK)]


def _even(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - _SLACK), math.floor(high / step + _SLACK)
    return [step * each for each in range(first, last + 1)]


def tick_words(value: float) -> str:
    """`2000` -> `2k`, `0.25` -> `0.25`: a round number in full."""
    for letter, step in _LETTERS:
        if abs(value) >= step * (1 - _SLACK):
            return f"{value / step:.4g}{letter}"
    return f"{value:.4g}"
