"""How often the observer does what: each task at its own rate, and never for more than its share.

A task measures its own CPU. When one turn costs more than the task's share of a core allows, turns
come further apart; a job with 500 threads gets a coarser picture, not a more expensive one.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

WEIGH_EVERY = 4
"""Only some turns are weighed: reading the CPU clock has its price too."""
_SMOOTHING = 0.2
_MAX_INTERVAL_NS = 30_000_000_000


@dataclass(slots=True)
class Task:
    """One thing that is done again and again."""

    name: str
    action: Callable[[int], None]
    """Takes the current time on the monotonic clock."""
    every_ns: int
    core_share: float
    """Share of one core that this task may use on average."""
    jitter_frac: float = 0.0
    """Turns move at random by as much of the interval: a job with a beat must not hide in it."""
    slack_frac: float = 0.25
    """Share of the interval that a turn may be late: one wake-up serves several tasks."""
    due_ns: int = 0
    cost_ns: float = 0.0
    """CPU of one turn, smoothed."""
    failures: int = 0
    turns: int = 0

    @property
    def wake_ns(self) -> int:
        """When to wake up for it at the latest: slow tasks wait for a faster one to wake us."""
        return self.due_ns + int(self.every_ns * self.slack_frac)

    @property
    def interval_ns(self) -> int:
        """Time between two turns that keeps the task within its share."""
        return int(min(max(self.every_ns, self.cost_ns / self.core_share), _MAX_INTERVAL_NS))

    def run(self, now_ns: int) -> None:
        """Take a turn, weigh it, and settle when the next one is due."""
        self.turns += 1
        start_ns = time.thread_time_ns() if self.turns % WEIGH_EVERY == 1 else None
        try:
            self.action(now_ns)
        finally:
            if start_ns is not None:
                self._weigh(time.thread_time_ns() - start_ns)
            chance = int.from_bytes(os.urandom(2), "little") / 0x8000 - 1
            self.due_ns = now_ns + int(self.interval_ns * (1 + self.jitter_frac * chance))

    def _weigh(self, cost_ns: int) -> None:
        share = _SMOOTHING if self.cost_ns else 1.0
        self.cost_ns += (cost_ns - self.cost_ns) * share
