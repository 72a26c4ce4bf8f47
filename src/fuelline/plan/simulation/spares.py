"""Spare instances: enough of them are up nearly always though each is broken now and then.

A chip fails once in 50,000 hours and is away for a day.
"""

from __future__ import annotations

import math

from fuelline.plan.training.reliability import CHIP_HOURS_BETWEEN_FAILURES

REPAIR_HOURS = 24.0
"""A broken host is replaced within a day."""
ENOUGH_UP_SHARE = 0.999
"""Of the time that enough instances must be up."""
_DEVIATIONS = 3.0902
"""Of a normal distribution that hold `ENOUGH_UP_SHARE` on one side."""
_MANY = 200
"""From this many on the number of broken ones is as good as normal."""


def add_spares(needed: int, chips: int) -> int:
    """The smallest number of which at least `needed` are up nearly always."""
    down = 1 - math.exp(-chips * REPAIR_HOURS / CHIP_HOURS_BETWEEN_FAILURES)
    if needed > _MANY:
        return _of_many(needed, down)
    total = needed
    while _enough_up(total, needed, down) < ENOUGH_UP_SHARE:
        total += 1
    return total


def _enough_up(total: int, needed: int, down: float) -> float:
    """Chance that no more than `total - needed` of `total` are broken."""
    return sum(
        math.comb(total, broken) * down**broken * (1 - down) ** (total - broken)
        for broken in range(total - needed + 1)
    )


def _of_many(needed: int, down: float) -> int:
    """Solves up * total - deviations * sqrt(total * up * down) = needed."""
    up = 1 - down
    half = _DEVIATIONS * math.sqrt(up * down) / 2
    return math.ceil(((half + math.sqrt(half**2 + up * needed)) / up) ** 2)
