"""Decides how many workers are active and how many batches are under way. Pure: no clock, no torch.

It gets how the last stretch of training went and answers with a change or none. A change is a
trial: the job's rate before against its rate after, counting only batches that were issued under
the new setting. Faster is kept. Not faster is confirmed by as many looks again and then taken back,
unless the wait itself is seen to fall, which is measured more finely than a rate that varies with
the trainer. The next attempt waits twice as long. Workers that stand idle are parked without a
trial.

How many workers are needed, and how many cores have room for, is counted as everywhere
(schema.worker_count). Nothing is predicted: the trial measures it. Workers on other hosts cost
somebody else's cores: they are tried when this host has no room left and a gain is predicted.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fuelline.fix.elastic.observation import RunningTrial, SettingChange
from fuelline.fix.elastic.reach import predict
from fuelline.schema.student import compare_means
from fuelline.schema.worker_count import (
    HEADROOM,
    MOST_WORKERS,
    QUEUED,
    count_affordable,
    count_needed,
)

if TYPE_CHECKING:
    from fuelline.fix.elastic.observation import Bound, Observation, TurnLimits, Verdict
    from fuelline.fix.elastic.reach import RemoteFigures


__all__ = ["Governor"]

SAVED = 0.01
"""Share of its time that a trial must save the training at least, if only its wait shows it."""
STARVED = 2 * SAVED
"""Share of its time that the training may wait without anything being done about it: a change that
halves a shorter wait saves less than what counts."""
FED = 0.005
IDLE = 0.5
"""Workers that are busy less than half of the time are too many."""
BUSY = 0.8
"""Share of their time above which workers are the limit; below it they wait for each other's turn,
or for indices."""
LOOKS = 3
"""In a trial, before and after: the least that has a spread."""
GAIN = 0.02
"""The same job differs by that from stretch to stretch."""
FIRST_PAUSE = 16
"""Looks until a change that did not help is tried again; doubled each time."""
IDLE_LOOKS = 6
LEAST_REACH = 0.05
"""Gain that must be predicted for workers on other hosts: they cost somebody else's cores."""
NOT_THE_LIMIT = "the workers are not the limit"
DEEPEST = 4
"""Times the job's own prefetch."""


@dataclass
class Governor:
    """One loader's."""

    limits: TurnLimits
    active: int
    window: int
    trial: RunningTrial | None = None
    ended: list[RunningTrial] = field(default_factory=list)
    """Judged and not yet written down."""
    _rates: list[float] = field(default_factory=list)
    _waits: list[float] = field(default_factory=list)
    _pause: int = 0
    _next_pause: int = FIRST_PAUSE
    _failed: set[tuple[int, int]] = field(default_factory=set)
    _idle: int = 0
    wanted: int = 0
    """Workers that would keep up and that cores and memory have room for, when last starved; may be
    more than were started, which the next epoch can change."""
    blocked_by: str = ""
    """Why a starved job is left as it is; empty if it is not."""
    bound: Bound = "none"
    """The same, to decide by."""
    remote: int = 0
    """Workers on other hosts that are given work."""
    figures: RemoteFigures | None = None
    """Of those that are ready."""
    is_remote_refused: bool = False
    """Whether they did not help, or would not."""
    remote_refusal: str = ""
    """Why they would not."""

    def hear(self, look: Observation) -> SettingChange | None:
        """Take in a stretch; what to change now, if anything."""
        if self.trial is not None:
            return self._judge(look)
        self._rates = [*self._rates[-5:], look.rate]
        self._waits = [*self._waits[-5:], look.starved]
        if self._pause:
            self._pause -= 1
            change = self._turn_elsewhere(look)  # what did not help here says nothing of there
            return None if change is None else self._begin(change)
        if len(self._rates) < LOOKS:
            return None
        self.bound = "none"
        change = self._grow(look) if look.starved > STARVED else self._shrink(look)
        change = change or self._turn_elsewhere(look)
        if change is not None:
            return self._begin(change)
        return None

    def lose(self, alive: int) -> None:
        """Workers died: no more than these are left, and what was measured is void."""
        self.limits = replace(self.limits, most=alive, base=min(self.limits.base, alive))
        self.active = min(self.active, alive)
        if self.trial is not None:
            self._close("cannot tell")
        self._forget()

    @property
    def is_short(self) -> bool:
        """Whether training waits, its workers are busy, and this host has room for no more."""
        return self.bound in {"cores", "memory", "started"} and not self.is_remote_refused

    def count_missing(self, look: Observation) -> int:
        """Workers that would be needed for what those that are here do not bring."""
        if not self.is_short or look.starved <= STARVED:
            return 0
        own_s = (look.seconds - look.wait_s) / look.batches
        if own_s <= 0:
            return MOST_WORKERS
        return max(1, math.ceil(HEADROOM * look.service_s * (1 / own_s - look.rate)))

    def lose_remote(self, alive: int) -> None:
        """Workers of other hosts are gone: no more than these are left."""
        if self.figures is not None:
            self.figures = replace(self.figures, count=alive) if alive else None
        self.remote = min(self.remote, alive)
        if self.trial is not None:
            self._close("cannot tell")
        self._forget()

    def _turn_elsewhere(self, look: Observation) -> SettingChange | None:
        """Workers on other hosts, if they are predicted to bring more than counts."""
        figures = self.figures
        if figures is None or figures.count <= self.remote or not self.is_short:
            return None
        if look.starved <= STARVED or len(self._rates) < LOOKS:
            return None
        limits = (self.limits.cores, min(self.limits.most_window, look.window_room))
        rate = statistics.fmean(self._rates)
        forecast = predict(look, figures, (rate, self.remote), limits)
        gain = forecast.rate / rate
        if gain < 1 + LEAST_REACH:
            self.is_remote_refused = not self.remote
            self.remote_refusal = f"they are predicted to bring {100 * (gain - 1):.0f} %"
            return None
        count = forecast.count
        window = max(
            self.window,
            min(forecast.window, limits[1]),
            self._window_for(self.active + count, look),
        )
        why = f"training waited {round(100 * look.starved)} % of the time, and {self.blocked_by}"
        self.blocked_by = ""
        return SettingChange(self.active, window, why, remote=count, predicted=gain)

    def _forget(self) -> None:
        self._rates, self._waits = [], []

    def withdraw(self) -> None:
        """The last change never came into force."""
        if self.trial is not None:
            self.active, self.window = self.trial.was
        self.trial = None

    def interrupt(self) -> None:
        """The job ends: an open trial stays undecided."""
        if self.trial is not None:
            self._close("cannot tell")

    def _begin(self, change: SettingChange) -> SettingChange:
        if change.is_trial:
            was, waited = (self.active, self.window), statistics.fmean(self._waits)
            before = self._rates[-2 * LOOKS :]
            self.trial = RunningTrial(change, was, before, waited=waited, was_remote=self.remote)
        self.active, self.window = change.active, change.window
        if change.remote is not None:
            self.remote = change.remote
        self._forget()
        return change

    def _judge(self, look: Observation) -> SettingChange | None:
        trial = self.trial
        assert trial is not None
        trial.after.append(look.rate)
        trial.waits.append(look.starved)
        verdict = _judge_trial(trial) if len(trial.after) >= LOOKS else None
        if verdict == "rolled back":
            return self._roll_back(trial)
        if verdict is not None:
            self._next_pause = FIRST_PAUSE if verdict == "kept" else self._next_pause
            self._rates, self._waits = trial.after, trial.waits
            self._close(verdict)
        return None

    def _roll_back(self, trial: RunningTrial) -> SettingChange:
        self._failed.add((trial.change.active, trial.change.window))
        active, window = trial.was
        was_remote = trial.was_remote
        self.is_remote_refused |= was_remote != self.remote
        if trial.change.active != active:  # after a longer queue another worker is tried at once
            self._pause, self._next_pause = self._next_pause, 2 * self._next_pause
        self.active, self.window, self.remote = active, window, was_remote
        self._forget()
        self._close("rolled back")
        why = "it did not help"
        return SettingChange(active, window, why, is_trial=False, remote=was_remote)

    def _close(self, verdict: Verdict) -> None:
        if self.trial is not None:
            self.trial.verdict = verdict
            self.ended.append(self.trial)
        self.trial = None

    def _grow(self, look: Observation) -> SettingChange | None:
        """More workers if they are busy and a core is free; a longer queue if they are not.

        Where the queue may not be longer, or that did not help, more workers start its batches
        sooner, as long as there are fewer of them than batches.
        """
        self._idle = 0
        busy = look.busy_s / (look.seconds * self.active)
        if busy < BUSY:
            deeper = self._deepen(look, busy)
            if deeper is not None or self.active >= self.window:
                return deeper
        if (look.queued or 0.0) > 2 * QUEUED and self.active > math.ceil(self.limits.cores):
            return self._thin_out(look)
        needed = self._needed(look) if busy >= BUSY else self.active + 1
        affordable = min(self._affordable(look), look.room)
        self.wanted = min(needed, affordable)
        target = min(self.wanted, self.limits.most)
        if target <= self.active:
            self._name_bound(look, busy)
            return None
        window = self._grown_window(target, look)
        if (target, window) in self._failed:
            target = self.active + 1  # the jump did not help; a step may
            window = self._grown_window(target, look)
        if (target, window) in self._failed:
            self.blocked_by, self.bound = NOT_THE_LIMIT, "other"
            return None
        self.blocked_by = ""
        return SettingChange(target, window, self._why_more(look, busy))

    def _why_more(self, look: Observation, busy: float) -> str:
        whose = "its worker was" if self.active == 1 else f"its {self.active} workers were"
        waited = f"training waited {round(100 * look.starved)} % of the time"
        if busy >= BUSY:
            return f"{waited} and {whose} busy"
        return f"{waited} although {whose} busy only {round(100 * busy)} % of it"

    def _thin_out(self, look: Observation) -> SettingChange | None:
        """Fewer workers if most of their time goes to waiting for each other's cores."""
        fewer = math.ceil(self.limits.cores)
        self.blocked_by, self.bound = "no core is free for another worker", "cores"
        if (fewer, self.window) in self._failed:
            return None
        share = round(100 * (look.queued or 0.0))
        why = f"{self.active} workers waited {share} % of their time for a core"
        return SettingChange(fewer, self.window, why)

    def _needed(self, look: Observation) -> int:
        """Workers that would keep up with the trainer."""
        own_s = (look.seconds - look.wait_s) / look.batches
        return max(count_needed(look.service_s, own_s), self.active + 1)

    def _affordable(self, look: Observation) -> int:
        """Workers that the cores have room for: as long as they get a core when they want one."""
        if look.queued is not None and look.queued > QUEUED:
            return self.active
        each = look.cpu_s / max(look.busy_s * (1 - (look.queued or 0.0)), 1e-9)
        return max(self.active, count_affordable(self.limits.cores, each))

    def _name_bound(self, look: Observation, busy: float) -> None:
        if busy < BUSY:
            self.bound, self.blocked_by = "other", NOT_THE_LIMIT
        elif self.limits.most <= self.active:
            wanted = f", and {self.wanted} would keep up" if self.wanted > self.active else ""
            words = f"no more than {self.limits.most} workers were started{wanted}"
            is_free = self._affordable(look) > self.active
            self.bound, self.blocked_by = "started" if is_free else "cores", words
        elif look.room <= self.active:
            self.bound, self.blocked_by = "memory", "memory has no room for another worker"
        else:
            self.bound, self.blocked_by = "cores", "no core is free for another worker"

    def _window_for(self, active: int, look: Observation) -> int:
        depth = self.limits.base_window / self.limits.base
        wanted = max(self.limits.base_window, math.ceil(depth * active))
        return max(self.limits.base_window, min(wanted, self.limits.most_window, look.window_room))

    def _grown_window(self, active: int, look: Observation) -> int:
        """Never shorter than it is: one thing at a time is tried."""
        return max(self.window, self._window_for(active, look))

    def _deepen(self, look: Observation, busy: float) -> SettingChange | None:
        deeper = min(2 * self.window, self.limits.most_window, look.window_room)
        deeper = min(deeper, DEEPEST * self._window_for(self.active, look))
        self.blocked_by = "" if deeper > self.window else NOT_THE_LIMIT
        if deeper <= self.window or (self.active, deeper) in self._failed:
            return None
        return SettingChange(self.active, deeper, self._why_more(look, busy))

    def _shrink(self, look: Observation) -> SettingChange | None:
        """Park workers that stand idle, one at a time, never below what the job itself has."""
        self.blocked_by = ""
        per_worker = look.busy_s / (look.seconds * self.active)
        has_more = self.active > self.limits.base or self.remote
        is_idle = look.starved < FED and per_worker < IDLE and bool(has_more)
        self._idle = self._idle + 1 if is_idle else 0
        if self._idle < IDLE_LOOKS:
            return None
        self._idle = 0
        if self.remote:
            why = "workers stood idle"
            return SettingChange(
                self.active, self.window, why, is_trial=False, remote=self.remote - 1
            )
        active = self.active - 1
        window = min(self.window, self._window_for(active, look))
        return SettingChange(active, window, "workers stood idle", is_trial=False)


def _judge_trial(trial: RunningTrial) -> Verdict | None:
    """What became of it; None as long as more looks may decide."""
    gain, (low, high) = compare_means(trial.before, trial.after)
    is_more = gain > 1 + GAIN
    if is_more and low > 1:
        return "kept"
    if high < 1:
        return "rolled back"
    if len(trial.after) < 2 * LOOKS:
        return None  # confirmed before it is taken back
    if _has_saved(trial):
        return "kept"
    if not is_more:
        return "rolled back"
    return "cannot tell" if len(trial.after) >= 4 * LOOKS else None


def _has_saved(trial: RunningTrial) -> bool:
    """Whether the wait fell to less than half, and by what counts."""
    now = statistics.fmean(trial.waits)
    return now < trial.waited / 2 and trial.waited - now > SAVED
