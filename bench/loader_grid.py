"""The best loader settings of a job, by trying them all: workers x prefetch x pin.

The ruler of bench.tune_gain, whose pipelines are those of bench.fix_job. Every
combination runs once for a short time, the best few again in turns; what is compared with them runs
in turns with the best two, so that a machine that changes its speed changes both, and that luck in
the grid is no part of the bar. Pinning needs an accelerator: without one there is nothing to try.
"""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS = ("blocked", "computing", "uneven", "distant")
WORKERS = (0, 1, 2, 3, 4, 6, 8)
PREFETCHES = (2, 4)
PINS = (False, True) if torch.cuda.is_available() else (False,)
QUICK_S, LONG_S = 3.5, 6.0
FINALISTS, BEST = 4, 2


@dataclass(frozen=True)
class Loading:
    """Settings of one loader."""

    workers: int = 1
    prefetch: int = 2
    pin: bool = False

    def words(self) -> list[str]:
        """For the job's command line."""
        pin = ["--pin"] if self.pin else []
        return ["--workers", str(self.workers), "--prefetch", str(self.prefetch), *pin]

    def text(self) -> str:
        """For people."""
        pinned = ", pinned" if self.pin else ""
        return f"{self.workers} workers, prefetch {self.prefetch}{pinned}"


GRID = [
    Loading(workers, prefetch, pin)
    for workers in WORKERS
    for prefetch in (PREFETCHES if workers else PREFETCHES[:1])
    for pin in PINS
]


def command(kind: str, *words: str) -> list[str]:
    """A job that tells its rates when it ends."""
    return [sys.executable, "-W", "ignore", "-m", "bench.fix_job", kind, *words]


def read_account(job: list[str]) -> dict[str, Any]:
    """The last line that a job writes."""
    done = subprocess.run(job, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def measure_rates(kind: str, loading: Loading, seconds: float) -> list[float]:
    """Batches a second, second by second; the first, in which workers start, does not count.

    A crowded machine may leave no second but the first: then the whole run is one.
    """
    told = read_account(command(kind, *loading.words(), "--seconds", str(seconds)))
    rates: list[float] = told["rates"][1:]
    return rates or [told["batches"] / told["seconds"]]


def in_turns(count: int, actions: Sequence[Callable[[], list[float]]]) -> list[float]:
    """Each some times, forwards and backwards in turn: the median rate of each."""
    rates: list[list[float]] = [[] for _ in actions]
    for number in range(count):
        pairs = list(zip(actions, rates, strict=True))
        for action, found in pairs if number % 2 == 0 else reversed(pairs):
            found.extend(action())
    return [statistics.median(found) for found in rates]


@functools.cache
def find_best(kind: str) -> tuple[Loading, ...]:
    """The best of all combinations, the very best first."""
    once = in_turns(1, [functools.partial(measure_rates, kind, each, QUICK_S) for each in GRID])
    finalists = rank(GRID, once)[:FINALISTS]
    again = [functools.partial(measure_rates, kind, each, LONG_S) for each in finalists]
    return tuple(rank(finalists, in_turns(2, again))[:BEST])


def rank(loadings: Sequence[Loading], rates: Sequence[float]) -> list[Loading]:
    """The fastest first."""
    ranked = sorted(zip(rates, loadings, strict=True), key=lambda pair: -pair[0])
    return [loading for _, loading in ranked]
