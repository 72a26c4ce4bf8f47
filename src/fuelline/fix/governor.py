"""Decides how many workers are active and how many batches are under way. Pure: no clock, no torch.

It is told how the last stretch of training went and answers with a change or none. A change is a
trial: the job's rate before against its rate after, counting only batches that were issued under
the new setting. Faster is kept. Not faster is confirmed by as many looks again and then taken back,
and the next attempt waits twice as long. Workers that stand idle are parked without a trial.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace

__all__ = ["Change", "Governor", "Limits", "Look", "Verdict"]

STARVED = 0.03
"""Share of its time that the training may wait without anything being done about it: at 3 % there
is less to gain than the 2 % that a trial can tell, and the price of the change."""
FED = 0.005
IDLE = 0.5
"""Workers that are busy less than half of the time are too many."""
HEADROOM = 1.15
"""More workers than the mean needs, since fetches differ (prototype, shared/LOADERS.md)."""
QUEUED = 0.25
"""Share of a fetch that is spent waiting for a core, beyond which more workers only queue
(prototype, shared/LOADERS.md)."""
LOOKS = 3
"""In a trial, before and after: the least that has a spread."""
GAIN = 0.02
"""The same job differs by that from stretch to stretch."""
FIRST_PAUSE = 16
"""Looks until a change that did not help is tried again; doubled each time."""
IDLE_LOOKS = 6
DEEPEST = 4
"""Times the job's own prefetch."""
_T_95 = {2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}
"""Student's t, two-sided 95 %, by degrees of freedom; beyond 10 it is taken for 2.1."""

Verdict = str
"""kept, rolled back, cannot tell."""


@dataclass(frozen=True)
class Limits:
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
class Look:
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
    own_cpu_s: float = 0.0
    """Of the training process itself, which wants a core of the same cores."""

    @property
    def rate(self) -> float:
        """Batches a second."""
        return self.batches / self.seconds

    @property
    def starved(self) -> float:
        """Share of the time that the training waits."""
        return self.wait_s / self.seconds

    @property
    def service_s(self) -> float:
        """Of one fetch; without the time in a queue for a core, which more workers lengthen."""
        return self.busy_s / max(1, self.fetches) * (1 - (self.queued or 0.0))


@dataclass(frozen=True)
class Change:
    """A new setting."""

    active: int
    window: int
    why: str
    predicted: float | None = None
    """Speedup by the operational laws: device, workers over service time, cores over demand."""
    is_trial: bool = True


@dataclass
class Trial:
    """A change that is being judged."""

    change: Change
    was: tuple[int, int]
    before: list[float]
    after: list[float] = field(default_factory=list)
    verdict: Verdict = "cannot tell"


@dataclass
class Governor:
    """One loader's."""

    limits: Limits
    active: int
    window: int
    trial: Trial | None = None
    ended: list[Trial] = field(default_factory=list)
    """Judged and not yet told."""
    _rates: list[float] = field(default_factory=list)
    _pause: int = 0
    _next_pause: int = FIRST_PAUSE
    _failed: set[tuple[int, int]] = field(default_factory=set)
    _idle: int = 0
    blocked_by: str = ""
    """Why a starved job is left as it is; empty if it is not."""

    def hear(self, look: Look) -> Change | None:
        """Take in a stretch; what to change now, if anything."""
        if self.trial is not None:
            return self._judge(look)
        self._rates = [*self._rates[-5:], look.rate]
        if self._pause:
            self._pause -= 1
            return None
        if len(self._rates) < LOOKS:
            return None
        change = self._grow(look) if look.starved > STARVED else self._shrink(look)
        if change is not None:
            return self._begin(change)
        return None

    def lose(self, alive: int) -> None:
        """Workers died: no more than these are left, and what was measured is void."""
        self.limits = replace(self.limits, most=alive, base=min(self.limits.base, alive))
        self.active = min(self.active, alive)
        if self.trial is not None:
            self._close("cannot tell")
        self._rates = []

    def withdraw(self) -> None:
        """The last change never came into force."""
        if self.trial is not None:
            self.active, self.window = self.trial.was
        self.trial = None

    def interrupt(self) -> None:
        """The job ends: an open trial stays undecided."""
        if self.trial is not None:
            self._close("cannot tell")

    def _begin(self, change: Change) -> Change:
        if change.is_trial:
            self.trial = Trial(change, (self.active, self.window), self._rates[-2 * LOOKS :])
        self.active, self.window = change.active, change.window
        self._rates = []
        return change

    def _judge(self, look: Look) -> Change | None:
        trial = self.trial
        assert trial is not None
        trial.after.append(look.rate)
        if len(trial.after) < LOOKS:
            return None
        gain, doubt = _compare(trial.before, trial.after)
        if gain - doubt > 1 and gain > 1 + GAIN:
            self._next_pause = FIRST_PAUSE
            self._rates = trial.after
            self._close("kept")
            return None
        if gain + doubt < 1:
            return self._roll_back(trial)
        if len(trial.after) < 2 * LOOKS or (gain > 1 + GAIN and len(trial.after) < 4 * LOOKS):
            return None  # confirmed before it is taken back; a gain in doubt gets more time
        if gain > 1 + GAIN:
            self._rates = trial.after
            self._close("cannot tell")
            return None
        return self._roll_back(trial)

    def _roll_back(self, trial: Trial) -> Change:
        self._failed.add((trial.change.active, trial.change.window))
        self._pause, self._next_pause = self._next_pause, 2 * self._next_pause
        active, window = trial.was
        self.active, self.window = active, window
        self._rates = []
        self._close("rolled back")
        return Change(active, window, "it did not help", is_trial=False)

    def _close(self, verdict: Verdict) -> None:
        if self.trial is not None:
            self.trial.verdict = verdict
            self.ended.append(self.trial)
        self.trial = None

    def _grow(self, look: Look) -> Change | None:
        """More workers if they are busy and a core is free; a longer queue if they are not."""
        self._idle = 0
        busy = look.busy_s / (look.seconds * self.active)
        if busy < 0.8:
            return self._deepen(look, busy)
        if (look.queued or 0.0) > 2 * QUEUED and self.active > math.ceil(self.limits.cores):
            return self._thin_out(look)
        target = min(self._needed(look), self._affordable(look), self.limits.most, look.room)
        self.blocked_by = self._name_bound(look) if target <= self.active else ""
        if target <= self.active:
            return None
        window = self._window_for(target, look)
        if (target, window) in self._failed:
            target = self.active + 1  # the jump did not help; a step may
            window = self._window_for(target, look)
            if (target, window) in self._failed:
                return None
        share = round(100 * look.starved)
        busy_words = "its worker was" if self.active == 1 else f"its {self.active} workers were"
        why = f"the training waited {share} % of the time and {busy_words} busy"
        return Change(target, window, why, self._predict(look, target))

    def _thin_out(self, look: Look) -> Change | None:
        """Fewer workers if most of their time goes to waiting for each other's cores."""
        fewer = math.ceil(self.limits.cores)
        self.blocked_by = "no core is free for another worker"
        if (fewer, self.window) in self._failed:
            return None
        share = round(100 * (look.queued or 0.0))
        why = f"{self.active} workers waited {share} % of their time for a core"
        return Change(fewer, self.window, why)

    def _needed(self, look: Look) -> int:
        """Workers that would keep up with the trainer; four times as many at most at a time."""
        own_s = (look.seconds - look.wait_s) / look.batches
        needed = math.ceil(HEADROOM * look.service_s / own_s) if own_s > 0 else self.limits.most
        return min(max(needed, self.active + 1), 4 * self.active)

    def _affordable(self, look: Look) -> int:
        """Workers that the cores have room for: as long as they get a core when they want one."""
        if look.queued is not None and look.queued > QUEUED:
            return self.active
        each = look.cpu_s / max(look.busy_s * (1 - (look.queued or 0.0)), 1e-9)
        return max(self.active, math.ceil(self.limits.cores / max(each, 0.01)))

    def _name_bound(self, look: Look) -> str:
        if self.limits.most <= self.active:
            return f"no more than {self.limits.most} workers were started"
        if look.room <= self.active:
            return "memory has no room for another worker"
        return "no core is free for another worker"

    def _window_for(self, active: int, look: Look) -> int:
        depth = self.limits.base_window / self.limits.base
        wanted = max(self.limits.base_window, math.ceil(depth * active))
        return max(self.limits.base_window, min(wanted, self.limits.most_window, look.window_room))

    def _deepen(self, look: Look, busy: float) -> Change | None:
        deeper = min(2 * self.window, self.limits.most_window, look.window_room)
        deeper = min(deeper, DEEPEST * self._window_for(self.active, look))
        self.blocked_by = "" if deeper > self.window else "the workers are not the limit"
        if deeper <= self.window or (self.active, deeper) in self._failed:
            return None
        why = (
            f"the training waited {round(100 * look.starved)} % of the time though the workers "
            f"were busy only {round(100 * busy)} % of it"
        )
        return Change(self.active, deeper, why)

    def _predict(self, look: Look, target: int) -> float:
        own_s = (look.seconds - look.wait_s) / look.batches
        cpu_s = look.cpu_s / max(1, look.fetches) + look.own_cpu_s / look.batches
        slowest_s = max(own_s, look.service_s / target, cpu_s / self.limits.cores, 1e-9)
        return max(1.0, 1 / (look.rate * slowest_s))

    def _shrink(self, look: Look) -> Change | None:
        """Park workers that stand idle, one at a time, never below what the job itself has."""
        self.blocked_by = ""
        per_worker = look.busy_s / (look.seconds * self.active)
        is_idle = look.starved < FED and per_worker < IDLE and self.active > self.limits.base
        self._idle = self._idle + 1 if is_idle else 0
        if self._idle < IDLE_LOOKS:
            return None
        self._idle = 0
        active = self.active - 1
        window = min(self.window, self._window_for(active, look))
        return Change(active, window, "workers stood idle", is_trial=False)


def _compare(before: list[float], after: list[float]) -> tuple[float, float]:
    """Ratio of means, and half of its 95 % interval."""
    old, new = statistics.fmean(before), statistics.fmean(after)
    errors = [
        statistics.stdev(rates) / math.sqrt(len(rates)) / statistics.fmean(rates)
        for rates in (before, after)
    ]
    freedom = len(before) + len(after) - 2
    return new / old, _T_95.get(freedom, 2.1) * math.hypot(*errors) * new / old
