"""What a step costs when neighbours disturb it least: in CPU time, and part against part.

Neighbours come and go, so that a step's distribution has a lower edge that they hardly move; how
blurred it is says how far it can be trusted. One that stays for all of a run moves the edge too,
but it slows all parts of a step alike: then only their ratios tell what the job itself does. The
machine is as much slower as the middle part is, by time; what a part took longer than that is the
job's. Two recordings cannot tell the job from the machine where all parts have changed alike, nor
where one that takes most of a step has changed against all others. Several of each side can,
because they show how much one differs from the next.

In come the recordings of either side, out goes an estimate with its half width at `LEVEL`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate, pairwise
from statistics import fmean, stdev, variance
from typing import TYPE_CHECKING, Literal, NamedTuple

from fuelline.schema.student import DEVIATIONS, find_t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.comparison import RunSamples, RunWork

LEVEL: Literal[99] = 99
"""The same job twice may be called different once in a hundred times."""
LEAST_CPU = 0.1
"""The tenth of the steps with the least CPU time."""
FEW_STEPS = 50
"""Fewer have no lower edge to speak of."""
_CPU_REPEATED_FRAC = 0.01
"""Standard deviation of the least CPU time of one job from run to run on a machine that nothing
else uses, as a share: speed of the cores, placement in memory."""
_EDGE = (0.05, 0.25)
_EDGE_ERROR = 1.0
"""Standard deviation of the least CPU time from run to run, of the distance between these
quantiles. 35 runs of two jobs beside 4 to 50 processes: 0.4 to 1.1 (root mean square over the
pairs of a job). bench/compare_power.py judges this and what follows by runs that came later."""
_LEAST_PART = 0.05
"""The twentieth of the steps in which a part took the least time: a thread that waits for a core
does so in some steps only, and in some parts of them."""
_BLOCKS = 10
"""Of a run, of consecutive steps: neighbours stay for a while."""
_WEIGHTY = 0.05
"""Of the time of all parts: a smaller one says nothing about the machine."""
_PART_REPEATED_FRAC = 0.015
"""The same for all parts together, against each other, beside any neighbours: parts differ in how
much they need the memory. 25 runs of a job whose optimizer needs it twice as much as the rest, up
to 1.6 times as slow: 0.009 to 0.013."""
_MOST_SLOWED = 1.6
"""Times that neighbours made all parts of a step take longer alike: the most between any two of
the runs above, whose steps read 8 MB of weights."""
_WAITS = ("input", "epoch start")
_ROUNDING = 1e-9


class LeastTimes(NamedTuple):
    """A number on both sides, in seconds a step, and how far their difference may be off."""

    before: float
    after: float
    half: float


class Relative(NamedTuple):
    """What the trainer's own parts take; `before` at the machine's speed after."""

    estimate: LeastTimes
    part: str
    """That changed most, of those that changed as the whole did."""
    factor: float
    """How many times as long all parts took alike."""


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them lies below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered))))]


def edge_error(values: list[float]) -> float:
    """Standard error of the least CPU time, from how sharp the lower edge is."""
    low, high = (quantile(values, share) for share in _EDGE)
    return _EDGE_ERROR * (high - low)


def measured_half(before: Sequence[float], after: Sequence[float]) -> float:
    """Half width for the difference of means of recordings, from how much those of a side differ.

    Both sides count for that: one of them may have a single recording.
    """
    sides = (before, after)
    free = len(before) + len(after) - 2
    squares = sum(variance(side) * (len(side) - 1) for side in sides if len(side) > 1)
    return find_t(free, LEVEL) * math.sqrt(squares / free * sum(1 / len(side) for side in sides))


def estimate_cpu(before: Sequence[RunSamples], after: Sequence[RunSamples]) -> LeastTimes | None:
    """CPU time of a step when it was disturbed least; None if it was not seen in every run.

    The trainer's, unless it waits for workers all the time, and of its workers' what it waits for:
    with the same weight on both sides, or a wait would count as work.
    """
    runs = [*before, *after]
    works = [run.work for run in runs if run.work is not None]
    if len(works) < len(runs) or any(len(work.trainer_cpu) < FEW_STEPS for work in works):
        return None
    is_fetched = all(len(work.fetch_cpu) >= FEW_STEPS for work in works)
    felt = fmean(work.felt_frac for work in works) if is_fetched else 0.0
    own = 0.0 if is_fetched and all(is_supply_bound(run) for run in runs) else 1.0
    least = [_least_cpu(work, own, felt) for work in works]
    sides = least[: len(before)], least[len(before) :]
    one, other = map(fmean, sides)
    if len(runs) > 2:
        return LeastTimes(one, other, measured_half(*sides))
    errors = [_cpu_error(work, own, felt) for work in works]
    repeated = [_CPU_REPEATED_FRAC * value for value in least]
    alike = own * max(find_common_slowdown(before[0], after[0]))
    return LeastTimes(one, other, DEVIATIONS[LEVEL] * math.hypot(*errors, *repeated) + alike)


def is_supply_bound(run: RunSamples) -> bool:
    """Whether workers take longer for a step's batches than the trainer does for the step itself.

    Then what the trainer does is hidden: it waits the less.
    """
    if run.work is None or run.work.supply is None:
        return False
    return run.work.supply > sum(_least_parts(run).values())


def _least_cpu(work: RunWork, own: float, felt: float) -> float:
    fetch = felt * quantile(work.fetch_cpu, LEAST_CPU) if felt else 0.0
    return own * quantile(work.trainer_cpu, LEAST_CPU) + fetch


def _cpu_error(work: RunWork, own: float, felt: float) -> float:
    fetch = felt * edge_error(work.fetch_cpu) if felt else 0.0
    return math.hypot(own * edge_error(work.trainer_cpu), fetch)


def estimate_relative(before: Sequence[RunSamples], after: Sequence[RunSamples]) -> Relative | None:
    """The trainer's own parts against each other; None where they cannot tell."""
    if not all(map(_has_own_parts, [*before, *after])):
        return None
    sides = [[_least_parts(run) for run in side] for side in (before, after)]
    one, other = map(_mean_parts, sides)
    factors = _find_factors(one, other)
    fracs = [_own_frac(one, other, factor) for factor in factors]
    if not fracs or min(fracs) <= 0 <= max(fracs):
        return None
    factor = min(factors, key=lambda each: abs(_own_frac(one, other, each)))
    scaled = {part: seconds * factor for part, seconds in one.items()}
    part = _find_changed(scaled, other)
    if abs(math.log(factor)) >= _find_growth(one.get(part, 0.0), other.get(part, 0.0)):
        return None  # as likely the machine is as before, and all other parts have changed
    half_frac = _half_frac(before, after)
    if len(before) + len(after) > 2:
        apart = [[_nearest_frac(_mean_parts(side), run) for run in side] for side in sides]
        half_frac = max(half_frac, measured_half(*apart))
    total = sum(scaled.values())
    return Relative(LeastTimes(total, sum(other.values()), half_frac * total), part, factor)


def _half_frac(before: Sequence[RunSamples], after: Sequence[RunSamples]) -> float:
    """Half width of the change of parts against each other, from how they vary within each run."""
    errors = [
        math.hypot(stdev(_block_fracs(run)) / math.sqrt(_BLOCKS), _PART_REPEATED_FRAC) / len(side)
        for side in (before, after)
        for run in side
    ]
    return DEVIATIONS[LEVEL] * math.hypot(*errors)


def find_common_slowdown(before: RunSamples, after: RunSamples) -> tuple[float, float]:
    """Seconds that all own parts of a step took longer alike in either run than in the other.

    Beside others, as far as these ran, that may be the machine.
    """
    if not (_has_own_parts(before) and _has_own_parts(after)):
        return 0.0, 0.0
    one, other = _least_parts(before), _least_parts(after)
    factor = max(_find_factors(one, other) or (1.0,), key=lambda each: abs(math.log(each)))
    slower = min(max(factor, 1 / factor), _MOST_SLOWED)
    run, parts = (after, other) if factor > 1 else (before, one)
    disturbed_frac = 0.0 if run.work is None else run.work.disturbed_frac
    seconds = disturbed_frac * (1 - 1 / slower) * sum(parts.values())
    return (0.0, seconds) if factor > 1 else (seconds, 0.0)


def _has_own_parts(run: RunSamples) -> bool:
    """Watched, of one rank (others wait and are waited for), and not hidden behind its workers."""
    is_known = run.work is not None and run.is_stepped and run.ranks == 1
    return is_known and len(run.steps) >= FEW_STEPS and not is_supply_bound(run)


def _least_parts(run: RunSamples, first: int = 0, last: int | None = None) -> dict[str, float]:
    """Of the steps from `first` to `last`: the least that each of the trainer's own parts took.

    To get a batch is one of them if the trainer itself prepares it.
    """
    fetches_itself = run.work is not None and run.work.supply == 0
    return {
        part: quantile(values[first:last], _LEAST_PART)
        for part, values in run.parts.items()
        if fetches_itself or part not in _WAITS
    }


def _mean_parts(side: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(part for each in side for part in each)
    return {part: fmean(each.get(part, 0.0) for each in side) for part in names}


def _block_fracs(run: RunSamples) -> list[float]:
    """By how much each block of consecutive steps differs from the whole run in its ratios."""
    whole, steps = _least_parts(run), len(run.steps)
    edges = [steps * block // _BLOCKS for block in range(_BLOCKS + 1)]
    return [_nearest_frac(whole, _least_parts(run, *pair)) for pair in pairwise(edges)]


def _nearest_frac(one: dict[str, float], other: dict[str, float]) -> float:
    """Within one job: of two factors in the middle, that of the machine that changed less."""
    factors = _find_factors(one, other) or (1.0,)
    factor = min(max(1.0, factors[0]), factors[-1])
    return _own_frac(one, other, factor)


def _own_frac(one: dict[str, float], other: dict[str, float], factor: float) -> float:
    """What all parts together took longer than the machine made them, as a share."""
    return sum(other.values()) / (factor * sum(one.values())) - 1


def _find_changed(scaled: dict[str, float], other: dict[str, float]) -> str:
    """The part that changed most, of those that changed as the whole did."""
    parts = dict.fromkeys([*scaled, *other])
    changes = {part: other.get(part, 0.0) - scaled.get(part, 0.0) for part in parts}
    sign = math.copysign(1.0, sum(changes.values()))
    return max(changes, key=lambda part: sign * changes[part])


def _find_growth(one: float, other: float) -> float:
    """By how much a part is longer or shorter, as ln of a factor."""
    return abs(math.log(other / one)) if one > 0 and other > 0 else math.inf


def _find_factors(one: dict[str, float], other: dict[str, float]) -> tuple[float, ...]:
    """How many times as long the middle part took, by time: two values if two are in the middle.

    No part has more weight than all others together, or it would be the measure of itself: one
    that takes most of a step and the next to it are both in the middle. None with fewer than two
    parts of some length.
    """
    totals = sum(one.values()), sum(other.values())
    weights = {
        part: one[part] / totals[0] + other[part] / totals[1]
        for part in one
        if one[part] > _WEIGHTY * totals[0] and other.get(part, 0.0) > _WEIGHTY * totals[1]
    }
    if len(weights) < 2:
        return ()
    whole = sum(weights.values())
    ranked = sorted(
        (other[part] / one[part], min(weight, whole - weight)) for part, weight in weights.items()
    )
    sums = list(accumulate(weight for _, weight in ranked))
    middles = [sums[-1] / 2 * (1 - _ROUNDING), sums[-1] / 2 * (1 + _ROUNDING)]
    return tuple(ranked[bisect_left(sums, middle)][0] for middle in middles)
