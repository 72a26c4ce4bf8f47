"""How far the mean of a run's steps may be off, by what is seen within the run.

Usual steps: neighbours are alike, so blocks of consecutive steps are what counts. What comes once
in many steps (an epoch's start, a checkpoint): its own occurrences.
"""

from __future__ import annotations

import math
from statistics import fmean, variance
from typing import TYPE_CHECKING, Literal, NamedTuple

from fuelline.schema.student import find_t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.comparison import RunSamples

_BLOCKS = 10
_EDGE_VARIANCE = 0.25
"""Of the number of times that a rare part falls into a window: it has one more or one less,
depending on where the window begins."""


class Spread(NamedTuple):
    """Of a mean: its variance, and how well that is known."""

    variance: float
    freedom: float


def half_width(
    spreads: Sequence[Spread | None], repeated: float, level: Literal[95, 99]
) -> float | None:
    """Half of the interval of the difference of means; None if a run has but one step.

    As Welch does it: variances add up, and so do, by their weight, the doubts about them. How much
    runs differ (`repeated`) is known from many.
    """
    known = [spread for spread in spreads if spread is not None]
    if len(known) < len(spreads):
        return None
    within = sum(spread.variance for spread in known)
    both = within + repeated
    if both == 0:
        return 0.0
    doubt = sum(spread.variance**2 / spread.freedom for spread in known)
    free = both**2 / doubt if doubt else math.inf
    return find_t(free, level) * math.sqrt(both)


def spread_of_mean(values: Sequence[float]) -> Spread | None:
    """By blocks where there are enough steps; None for a single one."""
    if len(values) < 2:
        return None
    if len(values) >= 2 * _BLOCKS:
        values = [
            fmean(values[len(values) * block // _BLOCKS : len(values) * (block + 1) // _BLOCKS])
            for block in range(_BLOCKS)
        ]
    return Spread(variance(values) / len(values), len(values) - 1)


def rare_spreads(part: str, before: RunSamples, after: RunSamples) -> list[Spread]:
    """Of the seconds a step that a rare part takes: from its length, and from how often it came.

    As many steps and as many times in both runs are equal work; else a window may hold one time
    more than the other only because of where it begins.
    """
    times = [run.rare.get(part, []) for run in (before, after)]
    counts = [(len(run.steps), len(each)) for run, each in zip((before, after), times, strict=True)]
    edge = 0.0 if counts[0] == counts[1] else _EDGE_VARIANCE
    both = [*times[0], *times[1]]
    if not both:
        return []
    found = []
    for each, (steps, count) in zip(times, counts, strict=True):
        of_one = variance(each) if count >= 2 else _spread_of_all(both)
        found.append(Spread(count * of_one / steps**2, max(1, count - 1)))
        mean = fmean(each) if each else fmean(both)
        found.append(Spread(edge * (mean / steps) ** 2, len(both)))
    return found


def _spread_of_all(times: list[float]) -> float:
    """Where a run has one time only: as all differ, or by all of its length."""
    return variance(times) if len(times) >= 2 else times[0] ** 2
