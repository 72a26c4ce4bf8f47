"""Timings in rounds, every probe once per round: what disturbs the machine disturbs all alike.

A probe's value is the median over rounds; its interval holds the true median with 95 % (order
statistics).
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SAMPLE_S = 0.012
"""A sample lasts at least this long: a thousand times the clock's grain and the cost of a call."""
MOST_REPEATS = 20_000


class TimedProbe(Struct, frozen=True):
    """Something to be timed."""

    key: str
    run: Callable[[], object]
    amount: float = 1.0
    """Of work in one run: FLOPs, bytes or calls."""
    pieces: tuple[Callable[[], object], ...] = ()
    """If there are any, only they are timed, each behind a `run` that leaves the caches as a model
    would. A difference of two long times would drown them."""


class Rounds:
    """Probes that are timed once per round, whenever the caller asks for one."""

    def __init__(
        self, probes: Sequence[TimedProbe], clock: Callable[[], float], settle: Callable[[], None]
    ) -> None:
        """`settle` waits until the device has done what was queued."""
        self._probes, self._clock, self._settle = probes, clock, settle
        self._repeats = {probe.key: _find_repeats(probe, clock, settle) for probe in probes}
        self._taken = 0
        self.times: dict[str, list[float]] = {probe.key: [] for probe in probes}
        """Seconds of one run of each probe, a value a round."""

    def take(self) -> None:
        """One round."""
        # Forth and back, so that no probe always follows the same neighbour.
        for probe in self._probes if self._taken % 2 == 0 else reversed(self._probes):
            seconds = _sample(probe, self._repeats[probe.key], self._clock, self._settle)
            self.times[probe.key].append(seconds)
        self._taken += 1


def _find_repeats(probe: TimedProbe, clock: Callable[[], float], settle: Callable[[], None]) -> int:
    _sample(probe, 1, clock, settle)  # the first call allocates, packs and picks kernels
    once = max(_sample(probe, 1, clock, settle), 1e-7)
    return max(1, min(math.ceil(SAMPLE_S / once), MOST_REPEATS))


def _sample(
    probe: TimedProbe, repeats: int, clock: Callable[[], float], settle: Callable[[], None]
) -> float:
    if probe.pieces:
        return sum(_sum_pieces(probe, clock, settle) for _ in range(repeats)) / repeats
    settle()
    start = clock()
    for _ in range(repeats):
        probe.run()
    settle()
    return (clock() - start) / repeats


def _sum_pieces(probe: TimedProbe, clock: Callable[[], float], settle: Callable[[], None]) -> float:
    spent = 0.0
    for piece in probe.pieces:
        probe.run()
        settle()
        start = clock()
        piece()
        settle()
        spent += clock() - start
    return spent


def find_spread(times: dict[str, list[float]]) -> float:
    """How much the rounds of a probe differ, as a share: the middle over all probes.

    The median distance from a probe's median, scaled to a standard deviation of normal noise.
    """
    spreads = []
    for rounds in times.values():
        middle = median(rounds)
        spreads.append(_TO_DEVIATION * median(abs(each - middle) for each in rounds) / middle)
    return median(spreads)


_TO_DEVIATION = 1.4826
"""Of normal noise: standard deviation over median absolute deviation."""


def median_reading(times: Sequence[float], unit: str, origin: str) -> Reading:
    """The middle, and the ranks between which the true median lies."""
    values = sorted(times)
    count = len(values)
    reach = math.ceil(0.98 * math.sqrt(count))
    middle = (values[(count - 1) // 2] + values[count // 2]) / 2
    low = values[max((count - 1) // 2 - reach, 0)]
    high = values[min(count // 2 + reach, count - 1)]
    return Reading(
        value=middle, unit=unit, low=low, high=high, level=95, count=count, origin=origin
    )


def rate_reading(amount: float, times: Sequence[float], unit: str, origin: str) -> Reading:
    """Work over time; the ends change places."""
    middle = median_reading(times, "s", origin)
    low, high = middle.low or middle.value, middle.high or middle.value
    return Reading(
        value=amount / middle.value,
        unit=unit,
        low=amount / high,
        high=amount / low,
        level=middle.level,
        count=middle.count,
        origin=origin,
    )
