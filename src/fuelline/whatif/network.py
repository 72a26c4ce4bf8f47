"""Throughput of a closed queueing network: workers go round between cores, storage and waiting.

Exact for product-form networks (Buzen's convolution, the closed form behind mean-value analysis):
each station serves faster or slower depending on how many customers are there, the rest of a round
is a plain delay. Beyond `MOST_EXACT` customers chance evens out, and the balance of flows answers.
Pure arithmetic; nothing here knows what the stations stand for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_CUSTOMERS = 512
"""Workers of one loader that are modelled; nobody starts more on one host."""
MOST_EXACT = 256
"""The convolution takes the square of it. With as many customers the balance of flows is at most
4 % off, where two stations are equally busy, and equal elsewhere (tests/unit/whatif)."""
_HALVINGS = 50
"""Of an interval: to the last digits of a float."""


@dataclass(frozen=True)
class Station:
    """A resource that customers share."""

    demand_s: float
    """What one round asks of it, if nobody else is there."""
    speed: Callable[[float], float]
    """Work per second with this many customers at it, where one alone does 1."""


def throughput(customers: int, delay_s: float, stations: Sequence[Station]) -> float:
    """Rounds per second of all customers together; 0 without customers or without work."""
    if customers < 1:
        return 0.0
    guess = _upper_bound(customers, delay_s, stations)
    if guess == 0.0:
        return float("inf")
    if customers > MOST_EXACT:
        return _balance(customers, delay_s, stations, guess)
    sums = _delays(customers, delay_s * guess)
    for station in stations:
        if station.demand_s > 0:
            sums = _convolve(sums, _products(customers, station, guess))
    return guess * sums[customers - 1] / sums[customers]


def _upper_bound(customers: int, delay_s: float, stations: Sequence[Station]) -> float:
    """Operational law: not more than everyone at full speed, nor more than any station gives."""
    alone_s = delay_s + sum(station.demand_s for station in stations)
    if alone_s <= 0:
        return 0.0
    limits = [
        max(station.speed(count) for count in (1, customers)) / station.demand_s
        for station in stations
        if station.demand_s > 0
    ]
    return min([customers / alone_s, *limits])


def _balance(
    customers: int, delay_s: float, stations: Sequence[Station], most_per_s: float
) -> float:
    """The rate at which the customers on their way and at the stations are all there are."""
    low, high = 0.0, most_per_s
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        busy = sum(_present(rate * each.demand_s, each, customers) for each in stations)
        low, high = (rate, high) if rate * delay_s + busy <= customers else (low, rate)
    return low


def _present(work_per_s: float, station: Station, customers: int) -> float:
    """How many customers a station needs to do this much; it works faster the more there are."""
    low, high = 0.0, float(customers)
    for _ in range(_HALVINGS):
        count = (low + high) / 2
        low, high = (count, high) if station.speed(count) < work_per_s else (low, count)
    return high


def _delays(customers: int, scaled: float) -> list[float]:
    """scaled^n / n! for n = 0 .. customers."""
    sums = [1.0]
    for count in range(1, customers + 1):
        sums.append(sums[-1] * scaled / count)
    return sums


def _products(customers: int, station: Station, scale: float) -> list[float]:
    sums = [1.0]
    for count in range(1, customers + 1):
        sums.append(sums[-1] * station.demand_s * scale / station.speed(count))
    return sums


def _convolve(left: list[float], right: list[float]) -> list[float]:
    return [
        sum(left[at] * right[count - at] for at in range(count + 1)) for count in range(len(left))
    ]
