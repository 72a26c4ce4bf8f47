"""Student's t: how many standard errors an interval reaches to either side of a mean.

Also here: the ratio of two means with such an interval, by which trials are judged and reported.
Standard library only: the loader inside the job judges its trials by it, too.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Level = Literal[80, 90, 95, 99]
"""Of an interval, in percent: how often it is to hold the true value."""
DEVIATIONS: dict[Level, float] = {80: 1.2816, 90: 1.6449, 95: 1.96, 99: 2.5758}
"""Standard deviations of a normal distribution that such an interval reaches to either side."""

_TWO_SIDED: dict[int, tuple[float, float, float]] = {
    1: (6.31, 12.71, 63.66), 2: (2.92, 4.30, 9.92), 3: (2.35, 3.18, 5.84), 4: (2.13, 2.78, 4.60),
    5: (2.02, 2.57, 4.03), 6: (1.94, 2.45, 3.71), 7: (1.89, 2.36, 3.50), 8: (1.86, 2.31, 3.36),
    9: (1.83, 2.26, 3.25), 10: (1.81, 2.23, 3.17), 12: (1.78, 2.18, 3.05), 15: (1.75, 2.13, 2.95),
    20: (1.72, 2.09, 2.85), 30: (1.70, 2.04, 2.75), 60: (1.67, 2.00, 2.66), 120: (1.64, 1.96, 2.58),
}  # fmt: skip
_COLUMNS: tuple[Level, ...] = (90, 95, 99)
"""By degrees of freedom, as every table of the distribution has them."""


def find_t(degrees: float, level: Literal[90, 95, 99] = 95) -> float:
    """For this many degrees of freedom; between two entries the lower, wider one counts."""
    known = [each for each in _TWO_SIDED if each <= degrees]
    return _TWO_SIDED[max(known, default=1)][_COLUMNS.index(level)]


def find_reach(degrees: float, chance: float) -> float:
    """Standard errors that a mean exceeds with this chance, to one side, if nothing is there.

    For rarer events than the table has, where many are looked at and any false one counts: the
    expansion of Student's t around a normal distribution (Abramowitz and Stegun 26.7.5), which is
    too small by 3 % at 4 degrees of freedom and a chance of 1 in 10,000; below 4 it is of no use.
    """
    z = statistics.NormalDist().inv_cdf(1 - chance)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / degrees**power for power, term in enumerate(terms))


def compare_means(
    before: Sequence[float], after: Sequence[float]
) -> tuple[float, tuple[float, float]]:
    """How many times as much the mean of `after` is, with its 95 % interval; two values each.

    As wide to either side in logarithms: a ratio of rates is above 0, and the other way round it is
    as uncertain.
    """
    errors = [
        statistics.stdev(rates) / math.sqrt(len(rates)) / statistics.fmean(rates)
        for rates in (before, after)
    ]
    factor = math.exp(find_t(len(before) + len(after) - 2) * math.hypot(*errors))
    ratio = statistics.fmean(after) / statistics.fmean(before)
    return ratio, (ratio / factor, ratio * factor)
