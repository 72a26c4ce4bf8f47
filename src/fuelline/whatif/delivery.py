"""Batches in order through a loader of several workers: what a slow batch costs the others.

Worker i mod W makes batch i; it starts when its last one is done and when the trainer has taken the
batch W x P before. The trainer takes batches in order. So one slow batch holds up those behind it,
and its worker's neighbours run dry when the queue is short. The recursion is exact; the fetch times
are drawn from a log-normal distribution with the recorded spread, the same draws every time, so
that two answers differ by what was asked and not by chance.
"""

from __future__ import annotations

import math
import random
from functools import lru_cache
from statistics import NormalDist

BATCHES = 400
_SETTLED = 80
_FAR = 0.3
"""A loader that could deliver more than three times as fast is never waited for in earnest."""
_DISORDER = 4
"""Seed of the fixed disorder."""


def deliver(
    round_s: float, consumer_s: float, workers: int, prefetch: int, *, spread: float
) -> float:
    """Mean time from batch to batch, where a worker's round and the trainer's take so long."""
    if workers * prefetch <= 0:
        return consumer_s
    room = workers * prefetch
    if round_s * (1 + 2 * spread) < _FAR * consumer_s * workers:
        return consumer_s
    fetches = _draws(round(spread, 3))
    done, taken = [0.0] * BATCHES, [0.0] * BATCHES
    free = 0.0
    for number in range(BATCHES):
        start = done[number - workers] if number >= workers else 0.0
        if number >= room:
            start = max(start, taken[number - room])
        done[number] = start + round_s * fetches[number]
        taken[number] = max(done[number], free)
        free = taken[number] + consumer_s
    drawn = sum(fetches[_SETTLED:]) / (BATCHES - _SETTLED)
    mean_s = (taken[-1] - taken[_SETTLED - 1]) / (BATCHES - _SETTLED)
    # Draws after the start have a mean of their own; where they decide, it is taken out.
    # With hundreds of workers the batches end before the first round does: the law holds anyway.
    return max(mean_s / drawn if mean_s > 1.01 * consumer_s else mean_s, round_s / workers)


@lru_cache(maxsize=64)
def _draws(spread: float) -> tuple[float, ...]:
    """Fetch times in units of their mean: every quantile once, in a fixed disorder."""
    sigma = math.sqrt(math.log(1 + spread**2))
    normal = NormalDist()
    quantiles = [(number + 0.5) / BATCHES for number in range(BATCHES)]
    random.Random(_DISORDER).shuffle(quantiles)
    raw = [math.exp(sigma * normal.inv_cdf(quantile)) for quantile in quantiles]
    mean = sum(raw) / BATCHES
    return tuple(value / mean for value in raw)
