"""What breaks a long synchronous run: failures between checkpoints, and the slowest of many ranks.

Young and Daly: the best interval between checkpoints that take C with failures every M is sqrt(2 C
M). A step of N ranks lasts as long as its slowest; with normal jitter of a share s it grows by s
times the expected maximum of N standard normals.
"""

from __future__ import annotations

import math

from fuelline.schema.plan.answers import Goodput, Jitter

CHIP_HOURS_BETWEEN_FAILURES = 50_000.0
"""Llama 3 (arXiv 2407.21783): 419 unexpected interruptions in 54 days on 16,384 GPUs, one in
50,700 GPU hours."""
CHECKPOINT_BYTES_PER_PARAM = 14.0
"""Weights in half precision and Adam's state in single precision (2 + 4 + 4 + 4)."""
CHECKPOINT_BYTES_PER_S = 200e9
"""What a large parallel filesystem takes in all."""
CHECKPOINT_BYTES_PER_S_PER_CHIP = 0.5e9
"""A parallel filesystem's share of one chip's host; give your own with --checkpoint."""
RESTART_S = 600.0
"""Finding the broken host, scheduling, loading: about ten minutes."""
ALLOWED_LOSS = 0.05
MOST_RANKS = 1_000_000
"""No job has more: a jitter that these allow is none."""


def expected_maximum(count: float) -> float:
    """Of `count` standard normals: Blom's approximation of the largest order statistic."""
    if count <= 1:
        return 0.0
    return _quantile((count - 0.375) / (count + 0.25))


def _quantile(share: float) -> float:
    """Of the standard normal distribution, by bisection of its cumulative form."""
    low, high = -10.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        if 0.5 * (1 + math.erf(middle / math.sqrt(2))) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def find_goodput(
    params: float,
    chips: int,
    checkpoint_s: float | None = None,
    chip_hours: float = CHIP_HOURS_BETWEEN_FAILURES,
) -> Goodput:
    """Best interval and the share of time that is useful work."""
    size = params * CHECKPOINT_BYTES_PER_PARAM
    cost = (
        checkpoint_s
        if checkpoint_s
        else size / min(chips * CHECKPOINT_BYTES_PER_S_PER_CHIP, CHECKPOINT_BYTES_PER_S)
    )
    cost = max(cost, 1.0)
    between = chip_hours * 3600 / chips
    interval = math.sqrt(2 * cost * between)
    lost = cost / interval + interval / (2 * between) + RESTART_S / between
    return Goodput(
        failure_every_s=between,
        checkpoint_s=cost,
        checkpoint_bytes=size,
        interval_s=interval,
        share=max(1 - lost, 0.0),
    )


def find_jitter(ranks: int, spread_frac: float) -> Jitter:
    """How much longer a step gets, and how many ranks a loss of five per cent allows."""
    allowed, too_many = 1, MOST_RANKS
    while too_many - allowed > 1:
        middle = (allowed + too_many) // 2
        fine = spread_frac * expected_maximum(middle) <= ALLOWED_LOSS
        allowed, too_many = (middle, too_many) if fine else (allowed, middle)
    return Jitter(
        ranks=ranks,
        spread_frac=spread_frac,
        expected_frac=spread_frac * expected_maximum(ranks),
        allowed_ranks=allowed,
    )
