"""What a step costs when neighbours disturb it least, in CPU time.

Neighbours come and go, so that a step's distribution has a lower edge that they hardly move; how
blurred it is says how far it can be trusted. One that stays for all of a run moves the edge, too,
but it slows all parts of a step: so what all of them changed by alike may be the machine, as far as
its speed is seen to wander within a run. Several recordings of each side show how much one differs
from the next; there that is measured instead.

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
LEAST = 0.05
"""The twentieth of the steps in which a part took the least time, or a step the least CPU time: a
thread that waits for a core does so in some steps only, and in some parts of them."""
FEW_STEPS = 50
"""Fewer have no lower edge to speak of."""
_LEAST_CPU = 0.02
"""Of the steps and batches, those with the least CPU time: the less, the fewer were disturbed."""
_CPU_REPEATED_FRAC = 0.027
"""Standard deviation of the least CPU time of one job from run to run on a machine that nothing
else uses, as a share: speed of the cores, placement in memory. 54 runs of two jobs of workers
beside others: 0.033 in all, 0.019 of it is their blurred edges; 6 runs beside none: 0.032."""
_EDGE = (0.01, 0.05)
_EDGE_ERROR = 1.0
"""Standard deviation of the least CPU time from run to run, of the distance between these
quantiles, by those 54 runs; bench/compare_power.py judges it by runs that came later."""
_EXPECTED_FREEDOM = 4
_MOST_BEYOND = 2
"""Degrees of freedom that what a recording itself says of its error is worth, beside what several
measure; and the factor within which it is right, or it is not used."""
_BLOCKS = 10
"""Of a run, of consecutive steps: neighbours stay for a while."""
WEIGHTY = 0.05
"""Of the time of all parts: a smaller one says nothing about the machine."""
_MOST_SLOWED = 2.0
"""Times that neighbours made all parts of a step take longer alike, at most: between any two of 42
runs of a job whose steps read 8 MB of weights, the backward pass 1.6, the forward pass 1.9."""
_WAITS = ("input", "epoch start")
_ROUNDING = 1e-9


class LeastTimes(NamedTuple):
    """A number on both sides, in seconds a step, and how far their difference may be off."""

    before: float
    after: float
    half: float
    deviation: float
    """From one recording to the next: measured with several, allowed for with a pair."""


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them lies below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered))))]


def edge_error(values: list[float]) -> float:
    """Standard error of the least CPU time, from how sharp the lower edge is."""
    low, high = (quantile(values, share) for share in _EDGE)
    return _EDGE_ERROR * (high - low)


def measured_half(before: Sequence[float], after: Sequence[float], modelled: float) -> float:
    """Half width for the difference of means of recordings, from how much those of a side differ.

    Both sides count for that: one of them may have a single recording. A few that are alike by
    chance do not make it narrower than the deviation that pairs allow for (`modelled`).
    """
    free = len(before) + len(after) - 2
    measured = find_t(free, LEVEL) * find_deviation(before, after)
    return max(measured, DEVIATIONS[LEVEL] * modelled) * _shorter(before, after)


def _believe(
    before: Sequence[float], after: Sequence[float], expected: float
) -> tuple[float, float]:
    """The same, and the deviation, where recordings themselves say how far one is from the next.

    That counts as `_EXPECTED_FREEDOM` more measurements, unless they differ by far more.
    """
    free = len(before) + len(after) - 2
    squares = free * find_deviation(before, after) ** 2
    if squares <= free * (_MOST_BEYOND * expected) ** 2:
        free += _EXPECTED_FREEDOM
        squares += _EXPECTED_FREEDOM * expected**2
    deviation = math.sqrt(squares / free)
    return find_t(free, LEVEL) * deviation * _shorter(before, after), deviation


def _shorter(before: Sequence[float], after: Sequence[float]) -> float:
    return math.sqrt(1 / len(before) + 1 / len(after))


def find_deviation(before: Sequence[float], after: Sequence[float]) -> float:
    """Standard deviation of a recording from others of its side, from both sides together."""
    squares = sum(variance(side) * (len(side) - 1) for side in (before, after) if len(side) > 1)
    return math.sqrt(squares / (len(before) + len(after) - 2))


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
    errors = [
        math.hypot(_cpu_error(work, own, felt), _CPU_REPEATED_FRAC * value)
        for work, value in zip(works, least, strict=True)
    ]
    expected = math.sqrt(fmean(error**2 for error in errors))
    if len(runs) > 2 and not own:
        return LeastTimes(one, other, *_believe(*sides, expected))
    alike = fmean(max(find_common_slowdown(*pair)) for pair in pair_up(before, after))
    modelled = expected + own * alike / DEVIATIONS[LEVEL] / math.sqrt(2)
    if len(runs) == 2:
        return LeastTimes(one, other, DEVIATIONS[LEVEL] * math.sqrt(2) * modelled, modelled)
    deviation = max(find_deviation(*sides), modelled)
    return LeastTimes(one, other, measured_half(*sides, modelled), deviation)


def pair_up(
    before: Sequence[RunSamples], after: Sequence[RunSamples]
) -> list[tuple[RunSamples, RunSamples]]:
    """Each recording of one side with one of the other."""
    count = max(len(before), len(after))
    return [(before[place % len(before)], after[place % len(after)]) for place in range(count)]


def is_supply_bound(run: RunSamples) -> bool:
    """Whether workers take longer for a step's batches than the trainer does for the step itself.

    Then what the trainer does is hidden: it waits the less.
    """
    if run.work is None or run.work.supply is None:
        return False
    return run.work.supply > sum(least_parts(run).values())


def _least_cpu(work: RunWork, own: float, felt: float) -> float:
    fetch = felt * quantile(work.fetch_cpu, _LEAST_CPU) if felt else 0.0
    return own * quantile(work.trainer_cpu, _LEAST_CPU) + fetch


def _cpu_error(work: RunWork, own: float, felt: float) -> float:
    fetch = felt * edge_error(work.fetch_cpu) if felt else 0.0
    return math.hypot(own * edge_error(work.trainer_cpu), fetch)


def find_common_slowdown(before: RunSamples, after: RunSamples) -> tuple[float, float]:
    """Seconds that all own parts of a step took longer alike in either run than in the other.

    That may be the machine: as far as other processes ran, or as its speed wanders within a run,
    whoever makes it do so.
    """
    if not (has_own_parts(before) and has_own_parts(after)):
        return 0.0, 0.0
    one, other = least_parts(before), least_parts(after)
    factor = max(_find_factors(one, other) or (1.0,), key=lambda each: abs(math.log(each)))
    slower = min(max(factor, 1 / factor), _MOST_SLOWED)
    run, parts = (after, other) if factor > 1 else (before, one)
    disturbed_frac = 0.0 if run.work is None else run.work.disturbed_frac
    wandered = DEVIATIONS[LEVEL] * math.hypot(_wandering(before), _wandering(after))
    share = max(disturbed_frac, min(1.0, wandered / abs(math.log(factor)))) if factor != 1 else 0.0
    seconds = share * (1 - 1 / slower) * sum(parts.values())
    return (0.0, seconds) if factor > 1 else (seconds, 0.0)


def _wandering(run: RunSamples) -> float:
    """Standard deviation of the machine's speed between parts of a run, as ln of a factor.

    From one run to the next it differs as much again: what makes it wander comes and goes slowly.
    """
    totals = [sum(block.values()) for block in split_least_parts(run)]
    return stdev(map(math.log, totals)) if min(totals) > 0 else 0.0


def has_own_parts(run: RunSamples) -> bool:
    """Watched, of one rank (others wait and are waited for), and not hidden behind its workers."""
    is_known = run.work is not None and run.is_stepped and run.ranks == 1
    return is_known and len(run.steps) >= FEW_STEPS and not is_supply_bound(run)


def least_parts(run: RunSamples, first: int = 0, last: int | None = None) -> dict[str, float]:
    """Of the steps from `first` to `last`: the least that each of the trainer's own parts took.

    To get a batch is one of them if the trainer itself prepares it.
    """
    fetches_itself = run.work is not None and run.work.supply == 0
    return {
        part: quantile(values[first:last], LEAST)
        for part, values in run.parts.items()
        if fetches_itself or part not in _WAITS
    }


def split_least_parts(run: RunSamples) -> list[dict[str, float]]:
    """The same for each block of consecutive steps."""
    edges = [len(run.steps) * block // _BLOCKS for block in range(_BLOCKS + 1)]
    return [least_parts(run, *pair) for pair in pairwise(edges)]


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
        if one[part] > WEIGHTY * totals[0] and other.get(part, 0.0) > WEIGHTY * totals[1]
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
