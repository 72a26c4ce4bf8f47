"""How often the observer does what: each task at its own rate, and never for more than its share.

A task measures its own CPU and pays for it out of its share of a core. When turns cost more than
comes in, they come further apart; a job with 500 threads gets a coarser picture, not a more
expensive one. Some seconds' worth can be saved up, so that one expensive turn (many new threads,
cold caches) does not blind the observer for long. Waking up has its price too, which no task sees:
the `ShareGovernor` weighs the whole process and slows down the task that wakes it most.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from fuelline.schema.run.samples import Blind

_SAVED_NS = 10_000_000_000
"""A task may save up the share of as much time, and starts with that."""
_MAX_INTERVAL_NS = 30_000_000_000
_MAX_STRETCH = 8.0
FAILURES_TO_GIVE_UP = 3


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
    head_start_ns: int = 0
    """CPU that it may use at first beyond its share: a task that has much to meet would otherwise
    pay for its first turn through the whole of a short job."""
    due_ns: int = 0
    stretch: float = 1.0
    """Set by the governor: turns come so much further apart than the task would have them."""
    failures: int = 0
    _saved_ns: float | None = None
    """CPU that it may use at once; below 0 it is in debt."""
    _paid_ns: int = 0
    """Until when its share has been paid out."""

    @property
    def wake_ns(self) -> int:
        """When to wake up for it at the latest: slow tasks wait for a faster one to wake us."""
        return self.due_ns + int(self.every_ns * self.slack_frac)

    @property
    def interval_ns(self) -> int:
        """Time between two turns that keeps the task within its share."""
        debt_ns = max(0.0, -(self._saved_ns or 0.0))
        own_ns = max(self.every_ns * self.stretch, debt_ns / self.core_share)
        return int(min(own_ns, _MAX_INTERVAL_NS))

    def run(self, now_ns: int) -> None:
        """Take a turn, weigh it, and settle when the next one is due."""
        start_ns = time.thread_time_ns()
        try:
            self.action(now_ns)
        finally:
            self.pay(now_ns, time.thread_time_ns() - start_ns)
            chance = int.from_bytes(os.urandom(2), "little") / 0x8000 - 1
            self.due_ns = now_ns + int(self.interval_ns * (1 + self.jitter_frac * chance))

    def pay(self, now_ns: int, cost_ns: int) -> None:
        """Take in the share of the time since the last turn, and pay for this one."""
        most_ns = _SAVED_NS * self.core_share
        earned_ns = (now_ns - self._paid_ns) * self.core_share
        if self._saved_ns is None:
            saved_ns = most_ns + self.head_start_ns
        else:
            saved_ns = max(self._saved_ns, min(most_ns, self._saved_ns + earned_ns))
        self._saved_ns, self._paid_ns = saved_ns - cost_ns, now_ns


def run_guarded(task: Task, now_ns: int) -> list[Blind]:
    """Take a turn; the first failure of a task leaves a row behind, the third one ends it."""
    try:
        task.run(now_ns)
    except Exception as error:  # noqa: BLE001  one sampler's surprise must not end the others
        task.failures += 1
        sys.excepthook(type(error), error, error.__traceback__)
        if task.failures == 1:
            why = f"{error!r}; see observer.log, and whether it failed thrice and was given up"
            what = f"some of what the observer's task '{task.name}' sees"
            return [Blind(what, why, "conclusions from it")]
    return []


class ShareGovernor:
    """Keeps the whole process within its share of a core by stretching one task."""

    def __init__(self, task: Task, core_share: float) -> None:
        self._task = task
        self._core_share = core_share
        self._at_ns: int | None = None
        self._cpu_ns = 0

    def adjust(self, now_ns: int, cpu_ns: int) -> None:
        """Take the CPU that the process has used so far; a fifth faster or slower each time."""
        if self._at_ns is not None and now_ns > self._at_ns:
            used = (cpu_ns - self._cpu_ns) / (now_ns - self._at_ns) / self._core_share
            stretch = self._task.stretch * min(max(used, 0.8), 1.2)
            self._task.stretch = min(max(stretch, 1.0), _MAX_STRETCH)
        self._at_ns, self._cpu_ns = now_ns, cpu_ns
