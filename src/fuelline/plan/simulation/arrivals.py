"""Requests as they arrive: a Poisson stream or a bursty one, with lengths that are fixed or spread.

Gaps between arrivals follow a gamma distribution whose coefficient of variation is the burstiness:
1 is
Poisson, above 1 requests come in bursts, 0 is a metronome. Lengths are lognormal around their
mean. Everything
comes from a seed, so that two plans see the same requests.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.errors import InputError
from fuelline.schema.plan.simulated import Request
from fuelline.schema.units import plain

if TYPE_CHECKING:
    from collections.abc import Iterator


class Arrivals(Struct, frozen=True, kw_only=True):
    """When requests come."""

    rate_per_s: float
    burstiness: float = 1.0
    """Coefficient of variation of the gaps. High: quiet spells and bursts at the same mean rate."""

    def check(self) -> None:
        """Raise if the stream makes no sense."""
        if not 1e-6 <= self.rate_per_s <= 1e6:
            raise InputError(
                f"a rate of {self.rate_per_s:g} requests per second; it must be between 1e-6 and "
                "1e6."
            )
        if not 0 <= self.burstiness <= 20:
            raise InputError(f"a burstiness of {self.burstiness:g}; it must be between 0 and 20.")

    def gaps(self, source: random.Random) -> Iterator[float]:
        """Seconds from one arrival to the next."""
        mean, spread = 1 / self.rate_per_s, self.burstiness
        while True:
            if spread == 0:
                yield mean
            else:
                yield source.gammavariate(spread**-2, mean * spread**2)

    def words(self) -> str:
        """For people."""
        if self.burstiness == 1:
            return f"Poisson, {self._rate}"
        if self.burstiness == 0:
            return f"evenly spaced, {self._rate}"
        return f"bursty (gaps vary by {self.burstiness:g}), {self._rate}"

    @property
    def _rate(self) -> str:
        return f"{plain(self.rate_per_s)} request{'' if self.rate_per_s == 1 else 's'}/s"


MIXED = 64
"""Lengths that those underway are drawn from, at least: few of them would be no mixture."""


class Lengths(Struct, frozen=True, kw_only=True):
    """How long prompts or outputs are."""

    mean: float
    spread: float = 0.0
    """Coefficient of variation: 0 all alike, about 1 in conversations (ShareGPT, Azure traces)."""

    def draw(self, source: random.Random) -> int:
        """One length, at least a token."""
        if self.spread == 0:
            return max(round(self.mean), 1)
        variance = math.log(1 + self.spread**2)
        middle = math.log(self.mean) - variance / 2
        return max(round(source.lognormvariate(middle, math.sqrt(variance))), 1)


def draw_requests(
    count: int, arrivals: Arrivals, prompt: Lengths, output: Lengths, seed: int = 1
) -> list[Request]:
    """The stream's first requests."""
    source = random.Random(seed)
    gaps = arrivals.gaps(source)
    found, now = [], 0.0
    for _ in range(count):
        now += next(gaps)
        found.append(Request(now, prompt.draw(source), output.draw(source)))
    return found


def draw_underway(count: int, prompt: Lengths, output: Lengths, seed: int = 1) -> list[Request]:
    """Requests as one finds them in a service that has run for long.

    Each has written some of its tokens, evenly between none and all. Long ones are found more
    often than they come: they stay longer.
    """
    source = random.Random(seed)
    drawn = [(prompt.draw(source), output.draw(source)) for _ in range(max(count, MIXED))]
    ends = list(itertools.accumulate(each for _, each in drawn))
    found = []
    for _ in range(count):
        at = source.randrange(ends[-1])
        number = bisect.bisect_right(ends, at)
        read, length = drawn[number]
        left = ends[number] - at
        found.append(Request(0.0, read + length - left, left, first_s=0.0, underway=True))
    return found
