"""The pace of steps: how many, how often, how long, by the optimizer that leads."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from fuelline.signals.live.window import WINDOW_NS

FEWEST_STEPS = 6
"""Kept however old they are: slow steps have a pace, too."""


@dataclass
class Steps:
    """Ends of the steps of one optimizer, or of batches."""

    count: int = 0
    first_ns: int = 0
    ends_ns: deque[int] = field(default_factory=deque)

    def add(self, end_ns: int) -> None:
        """One more step has ended."""
        self.first_ns = self.first_ns or end_ns
        self.count += 1
        self.ends_ns.append(end_ns)
        while len(self.ends_ns) > FEWEST_STEPS and self.ends_ns[0] < end_ns - WINDOW_NS:
            self.ends_ns.popleft()

    def lengths_s(self) -> list[float]:
        """From end to end, shortest first."""
        return sorted((after - before) / 1e9 for before, after in pairwise(self.ends_ns))

    def per_second(self, now_ns: int) -> float | None:
        """The pace; it falls as soon as a step is overdue."""
        lengths = self.lengths_s()
        if not lengths:
            return None
        overdue_s = max(0.0, (now_ns - self.ends_ns[-1]) / 1e9 - lengths[-1])
        span_s = sum(lengths) + overdue_s
        return len(lengths) / span_s if span_s > 0 else None


def find_leader(steps: dict[int, Steps]) -> Steps | None:
    """The optimizer that steps most; of several that take turns, the one that steps last."""
    most = max((each.count for each in steps.values()), default=0)
    leaders = [each for each in steps.values() if each.count >= most - 1]
    return max(leaders, key=lambda each: each.first_ns, default=None)


def percentile(ordered: list[float], frac: float) -> float | None:
    """A value that `frac` of the ordered ones do not exceed, interpolated; None without any."""
    if not ordered:
        return None
    at = frac * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
