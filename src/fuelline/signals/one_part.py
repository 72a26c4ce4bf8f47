"""Has one of a step's own parts changed against all the others?

A slower machine slows all parts of a step, but not alike: what moves memory feels a neighbour more
than what computes. So each part is held against the span of factors by which the others changed:
one that changed by more than any of them did so because of the job. Which of two changed cannot be
told, so at least two others have to speak, and the part itself must have changed by more than the
machine, or against three others: or it is as likely that the machine is as before, and the others
have changed.

    part        before   after   factor
    forward     1.02 ms  1.09 ms  1.07     with the others 1.07 to 1.25 times as long, a loop of
    backward    1.67 ms  1.79 ms  1.07     30 us would take at most 47 us: 0.4 ms of it is the
    optimizer   0.24 ms  0.30 ms  1.25     job's
    loop        0.03 ms  0.45 ms  15

In come the recordings of either side, out goes the part with an interval at `LEVEL`.
"""

from __future__ import annotations

import math
from statistics import stdev
from typing import TYPE_CHECKING, NamedTuple

from fuelline.schema.student import DEVIATIONS
from fuelline.signals.undisturbed import (
    LEVEL,
    WEIGHTY,
    has_own_parts,
    least_parts,
    split_least_parts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.comparison import RunSamples

_FEWEST_OTHERS = 2
_FEWEST_OPPOSED = 3
_REPEATED = 0.015
"""Standard deviation of the ln of a part's least time against the others', from run to run, that
blocks of one run do not show: where its memory lies. bench/compare_power.py has runs to hold it
against."""
_COMPUTING = ("forward", "backward")
"""What feels the memory less than the optimizer, which only moves it, so that the machine's effect
lies within that on the others. 42 runs of one job on machines up to 1.9 times as slow: where the
backward pass took 10 % longer, the forward pass took 14 %, the optimizer 21 %."""


class Relative(NamedTuple):
    """All own parts of a step, in seconds, of which the job changed one."""

    part: str
    factor: float
    """How many times as long the others took."""
    before: float
    """At the machine's speed after."""
    after: float
    low: float
    """Of the change."""
    high: float


class _Part(NamedTuple):
    """What it takes on both sides, in seconds, and the error of the ln of either."""

    before: float
    after: float
    error: float

    @property
    def growth(self) -> float:
        """As ln of a factor."""
        if self.before <= 0 or self.after <= 0:
            return math.inf if self.after > self.before else -math.inf
        return math.log(self.after / self.before)


def estimate_relative(before: Sequence[RunSamples], after: Sequence[RunSamples]) -> Relative | None:
    """The part that changed against all others, the most if several did; None where none can."""
    if not all(map(has_own_parts, [*before, *after])):
        return None
    parts = _measure_parts(before, after)
    totals = sum(part.before for part in parts.values()), sum(part.after for part in parts.values())
    weighty = {
        name: part
        for name, part in parts.items()
        if part.before > WEIGHTY * totals[0] and part.after > WEIGHTY * totals[1]
    }
    found = [_judge_part(name, parts, weighty, totals[1]) for name in parts]
    return max(filter(None, found), key=lambda each: abs(each.after - each.before), default=None)


def _judge_part(
    name: str, parts: dict[str, _Part], weighty: dict[str, _Part], whole: float
) -> Relative | None:
    """By how much it changed beyond the others; None if these may have changed instead."""
    others = [part for other, part in weighty.items() if other != name]
    if len(others) < _FEWEST_OTHERS:
        return None
    growths = [part.growth for part in others]
    low, high = min(growths), max(growths)
    speed = max(abs(low), abs(high))
    part = parts[name]
    if abs(part.growth) <= speed and not _is_opposed(name, parts):
        return None
    factor = math.exp((low + high) / 2)
    beyond = 0.0 if name in _COMPUTING else high - low + speed
    error = math.hypot(*(other.error for other in others)) / len(others)
    reach = math.exp(DEVIATIONS[LEVEL] * math.hypot(part.error, error))
    change = part.after - part.before * factor
    least = part.after / reach - part.before * math.exp(high + beyond)
    most = part.after * reach - part.before * math.exp(low - beyond)
    if least <= 0 <= most:
        return None
    return Relative(name, factor, whole - change, whole, least, most)


def _is_opposed(name: str, parts: dict[str, _Part]) -> bool:
    """Whether it grew while all others shrank, or the other way round: small ones count, too."""
    others = [part for other, part in parts.items() if other != name and part.before > 0]
    return len(others) >= _FEWEST_OPPOSED and all(
        part.growth * parts[name].growth < 0 for part in others
    )


def _measure_parts(before: Sequence[RunSamples], after: Sequence[RunSamples]) -> dict[str, _Part]:
    sides = [[(least_parts(run), _block_errors(run)) for run in side] for side in (before, after)]
    names = dict.fromkeys(name for side in sides for least, _ in side for name in least)
    return {name: _measure_part(name, sides) for name in names}


def _measure_part(name: str, sides: list[list[tuple[dict[str, float], dict[str, float]]]]) -> _Part:
    """Means of either side; a part that is not always there is zero at times."""
    before, after = (
        math.prod(least.get(name, 0.0) ** (1 / len(side)) for least, _ in side) for side in sides
    )
    errors = [
        math.hypot(errors.get(name, 0.0), _REPEATED) / len(side)
        for side in sides
        for _, errors in side
    ]
    return _Part(before, after, math.hypot(*errors))


def _block_errors(run: RunSamples) -> dict[str, float]:
    """Standard error of the ln of each part's least time, from how blocks of the run differ."""
    blocks = split_least_parts(run)
    return {
        name: stdev(math.log(block[name]) for block in blocks) / math.sqrt(len(blocks))
        for name in run.parts
        if all(block.get(name, 0.0) > 0 for block in blocks)
    }
