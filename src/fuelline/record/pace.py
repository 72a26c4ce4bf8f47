"""How often the observer does what: each task at its own rate, and never for more than its share.

A task measures its own CPU. When one turn costs more than the task's share of a core allows, turns
come further apart; a job with 500 threads gets a coarser picture, not a more expensive one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

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
    due_ns: int = 0
    cost_ns: float = 0.0
    """CPU of one turn, smoothed."""
    failures: int = 0
    random: Random = field(default_factory=Random)

    @property
    def interval_ns(self) -> int:
        """Time between two turns that keeps the task within its share."""
        return int(min(max(self.every_ns, self.cost_ns / self.core_share), _MAX_INTERVAL_NS))

    def run(self, now_ns: int) -> None:
        """Take a turn, weigh it, and settle when the next one is due."""
        start_ns = time.thread_time_ns()
        try:
            self.action(now_ns)
        finally:
            cost_ns = time.thread_time_ns() - start_ns
            self.cost_ns += (cost_ns - self.cost_ns) * _SMOOTHING
            jitter = self.random.uniform(-self.jitter_frac, self.jitter_frac)
            self.due_ns = now_ns + int(self.interval_ns * (1 + jitter))
