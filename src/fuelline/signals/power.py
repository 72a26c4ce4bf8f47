"""How many recordings of each side would show a change of a tenth of a step?

In comes the standard deviation of one recording of the job to the next, as a share of a step: that
measured with several, or that which a pair has to allow for. A test of Student's at 99 % then needs
so many of each side to find the change in 95 of 100 comparisons.

    deviation     0.02   0.04   0.08   0.13
    recordings    4      8      26     61: said to be more than 50
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.comparison import MOST_RECORDINGS, NOTABLE_FRAC
from fuelline.schema.student import find_t
from fuelline.signals.undisturbed import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence


def count_recordings(deviations: Sequence[float]) -> int | None:
    """By the best of the measures that have these deviations; None if too many to be of use."""
    if not deviations:
        return None
    return next(
        (
            count
            for count in range(2, MOST_RECORDINGS + 1)
            if _find_reach(min(deviations), count) <= NOTABLE_FRAC
        ),
        None,
    )


def _find_reach(deviation: float, count: int) -> float:
    """The change that is found in 95 of 100: 90 % of an interval leave 5 % at either end."""
    free = 2 * count - 2
    return (find_t(free, LEVEL) + find_t(free, 90)) * deviation * math.sqrt(2 / count)
