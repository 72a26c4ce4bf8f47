"""What the governor gets, what it answers, and what it remembers of a change.

Plain values: no clock, no torch. Shares are of the training's time, 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Bound", "Observation", "RunningTrial", "SettingChange", "TurnLimits", "Verdict"]

Verdict = str
"""kept, rolled back, cannot tell."""
Bound = Literal["none", "cores", "memory", "started", "other"]
"""Why there are no more workers here: no core, no memory, none in reserve; or more would not help.
"""


@dataclass(frozen=True)
class TurnLimits:
    """What may be turned, and how far."""

    base: int
    """The job's own number of workers."""
    most: int
    """Workers that were started."""
    cores: float
    """Of the host, shared out among the ranks that train on it."""
    base_window: int
    """Batches under way as the job has it: prefetch times workers."""
    most_window: int
    """The same, at most: more may not be drawn from this sampler ahead, or not kept in memory."""


@dataclass(frozen=True)
class Observation:
    """One stretch of training, all of it under the present setting."""

    seconds: float
    batches: int
    wait_s: float
    """In the loader, of the trainer's time."""
    busy_s: float
    """In fetches, all workers together; likewise on a core."""
    cpu_s: float
    fetches: int
    queued: float | None
    """Share of their fetches that workers wanted a core and had none."""
    room: int = 1 << 16
    """Workers that memory and shared memory have room for."""
    window_room: int = 1 << 16
    cores: float | None = None
    """That other ranks and jobs of the host leave to this loader; None where it is alone."""
    is_claimed: bool = False
    """Whether one of them is late because of its input, and has not the cores that it is due."""
    others: tuple[tuple[str, float], ...] = ()
    """Batches a second of each of them, by name."""
    late: int = 1
    """Ranks and jobs of the host that wait for input, this one included: they share its memory."""

    @property
    def computing(self) -> float:
        """Share of a core that a worker uses while it fetches and is not in a queue for one."""
        return self.cpu_s / max(self.busy_s * (1 - (self.queued or 0.0)), 1e-9)

    @property
    def rate(self) -> float:
        """Batches a second."""
        return self.batches / self.seconds

    @property
    def starved(self) -> float:
        """Share of the time that training waits."""
        return self.wait_s / self.seconds

    @property
    def service_s(self) -> float:
        """Of one fetch; without the time in a queue for a core, which more workers lengthen."""
        return self.busy_s / max(1, self.fetches) * (1 - (self.queued or 0.0))


@dataclass(frozen=True)
class SettingChange:
    """A new setting."""

    active: int
    window: int
    why: str
    is_trial: bool = True
    remote: int | None = None
    """Workers on other hosts; None leaves them as they are."""
    predicted: float | None = None
    """Rate against the present one, where it was predicted."""


@dataclass
class RunningTrial:
    """A change that is being judged."""

    change: SettingChange
    was: tuple[int, int]
    before: list[float]
    after: list[float] = field(default_factory=list)
    verdict: Verdict = "cannot tell"
    waited: float = 0.0
    """Share of the time before it that training waited."""
    waits: list[float] = field(default_factory=list)
    """The same after it, look by look."""
    was_remote: int = 0
    others: tuple[tuple[str, float], ...] = ()
    """Rates of other ranks and jobs of the host before it."""
