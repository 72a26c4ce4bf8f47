"""Throughput of a closed queueing network: workers go round between cores, storage and waiting.

Exact for product-form networks (Buzen's convolution, the closed form behind mean-value analysis):
each station serves faster or slower depending on how many customers are there, the rest of a round
is a plain delay. Pure arithmetic; nothing here knows what the stations stand for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_CUSTOMERS = 512
"""The sums grow like e to this power; twice as much would leave the range of a float."""


@dataclass(frozen=True)
class Station:
    """A resource that customers share."""

    demand_s: float
    """What one round asks of it, if nobody else is there."""
    speed: Callable[[int], float]
    """Work per second with so many customers at it, where one alone does 1."""


def throughput(customers: int, delay_s: float, stations: Sequence[Station]) -> float:
    """Rounds per second of all customers together; 0 without customers or without work."""
    if customers < 1:
        return 0.0
    guess = _upper_bound(customers, delay_s, stations)
    if guess == 0.0:
        return float("inf")
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
