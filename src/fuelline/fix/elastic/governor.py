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
BESIDE = " beside the host's other ranks"
TAKEN = 0.05
"""What a change may cost another rank beyond what it gains here: rates differ by that."""
MORE = 0.2
"""Share of its time that training waits more than when a change did not help: then it is another
need. Stretches of one job differ by less."""
CLAIMS = 3
"""Looks in a row at which another rank is short of cores, before workers are given back for it."""
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
    _refused_at: float = 0.0
    """Share of its time that training waited when the last change did not help."""
    _failed: set[tuple[int, int]] = field(default_factory=set)
    _idle: int = 0
    _claims: int = 0
    _gift: RunningTrial | None = None
    """Workers given back for another rank, until it is seen what that has of it."""
    _next_claims: int = CLAIMS
    wanted: int = 0
    """Workers that would keep up and that cores and memory have room for, when last starved; may be
    more than were started, which the next epoch can change."""
    noun: str = "worker"
    """What there is more or less of."""
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

    @property
    def is_asking(self) -> bool:
        """Whether what it does next depends on other ranks, though training may not wait."""
        has_more = self.active > self.limits.base
        return has_more or self.trial is not None or self._gift is not None

    def hear(self, look: Observation) -> SettingChange | None:
        """Take in a stretch; what to change now, if anything."""
        if self.trial is not None:
            return self._judge(look)
        if self._gift is not None:
            return self._judge_gift(self._gift, look)
        self._rates = [*self._rates[-5:], look.rate]
        self._waits = [*self._waits[-5:], look.starved]
        if self._pause and statistics.fmean(self._waits[-LOOKS:]) > self._refused_at + MORE:
            self._pause = 0  # it waits for something else than when the change did not help
            self._failed.clear()
        given = self._give_back(look)
        if given is not None:
            self._pause = max(0, self._pause - 1)
            return given
        change = None
        if self._pause:
            self._pause -= 1
        elif len(self._rates) >= LOOKS:
            self.bound = "none"
            change = self._grow(look) if look.starved > STARVED else self._shrink(look)
        change = change or self._turn_elsewhere(look)  # what did not help here may help there
        return None if change is None else self._begin(change, look)

    def lose(self, alive: int) -> None:
        """Workers died: no more than these are left, and what was measured is void."""
        self.limits = replace(self.limits, most=alive, base=min(self.limits.base, alive))
        self.active = min(self.active, alive)
        if self.trial is not None:
            self._close("cannot tell")
        self._gift = None
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
        limits = (self._cores(look), min(self.limits.most_window, look.window_room))
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

    def _begin(self, change: SettingChange, look: Observation) -> SettingChange:
        if change.is_trial:
            was, waited = (self.active, self.window), statistics.fmean(self._waits)
            before = self._rates[-2 * LOOKS :]
            self.trial = RunningTrial(
                change,
                was,
                before,
                waited=waited,
                was_remote=self.remote,
                others=look.others,
            )
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
            return self._roll_back(trial, "it did not help")
        if verdict == "kept" and min(_compare_others(trial, look), default=1.0) < 1 - TAKEN:
            return self._roll_back(trial, "it slowed another rank of this host down by more")
        if verdict is not None:
            self._next_pause = FIRST_PAUSE if verdict == "kept" else self._next_pause
            self._rates, self._waits = trial.after, trial.waits
            self._close(verdict)
        return None

    def _roll_back(self, trial: RunningTrial, why: str) -> SettingChange:
        self._failed.add((trial.change.active, trial.change.window))
        self._refused_at = trial.waited
        active, window = trial.was
        was_remote = trial.was_remote
        self.is_remote_refused |= was_remote != self.remote
        if trial.change.active != active:  # after a longer queue another worker is tried at once
            self._pause, self._next_pause = self._next_pause, 2 * self._next_pause
        self.active, self.window, self.remote = active, window, was_remote
        self._forget()
        self._close("rolled back")
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
        if (look.queued or 0.0) > 2 * QUEUED and self.active > math.ceil(self._cores(look)):
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
            self.blocked_by, self.bound = self._not_the_limit(), "other"
            return None
        self.blocked_by = ""
        return SettingChange(target, window, self._why_more(look, busy))

    def _why_more(self, look: Observation, busy: float) -> str:
        whose = f"its {self.noun} was"
        if self.active > 1:
            whose = f"its {self.active} {self.noun}s were"
        waited = f"training waited {round(100 * look.starved)} % of the time"
        if look.cores is not None and look.cores > self.limits.cores + 0.5:
            whose = f"this host's other ranks left it {look.cores:.1f} cores, {whose}"
        if busy >= BUSY:
            return f"{waited} and {whose} busy"
        return f"{waited} although {whose} busy only {round(100 * busy)} % of it"

    def _thin_out(self, look: Observation) -> SettingChange | None:
        """Fewer workers if most of their time goes to waiting for each other's cores."""
        fewer = math.ceil(self._cores(look))
        self.blocked_by, self.bound = self._no_core(), "cores"
        if (fewer, self.window) in self._failed:
            return None
        share = round(100 * (look.queued or 0.0))
        why = f"{self.active} {self.noun}s waited {share} % of their time for a core"
        return SettingChange(fewer, self.window, why)

    def _needed(self, look: Observation) -> int:
        """Workers that would keep up with the trainer."""
        own_s = (look.seconds - look.wait_s) / look.batches
        return max(count_needed(look.service_s, own_s), self.active + 1)

    def _affordable(self, look: Observation) -> int:
        """Workers that the cores have room for: as long as they get a core when they want one."""
        is_due = look.cores is not None and (self.active + 1) * look.computing <= look.cores
        if look.queued is not None and look.queued > QUEUED and not is_due:
            return self.active
        return max(self.active, count_affordable(self._cores(look), look.computing))

    def _cores(self, look: Observation) -> float:
        """What the host's other ranks leave; where nobody says, an equal share."""
        return self.limits.cores if look.cores is None else look.cores

    def _name_bound(self, look: Observation, busy: float) -> None:
        if busy < BUSY:
            self.bound, self.blocked_by = "other", self._not_the_limit()
        elif self.limits.most <= self.active:
            wanted = f", and {self.wanted} would keep up" if self.wanted > self.active else ""
            words = f"no more than {self.limits.most} {self.noun}s were started{wanted}"
            is_free = self._affordable(look) > self.active
            self.bound, self.blocked_by = "started" if is_free else "cores", words
        elif look.room <= self.active:
            self.bound = "memory"
            self.blocked_by = f"memory has no room for another {self.noun}"
        else:
            self.bound = "cores"
            self.blocked_by = f"{self._no_core()}{'' if look.cores is None else BESIDE}"

    def _not_the_limit(self) -> str:
        return f"the {self.noun}s are not the limit"

    def _no_core(self) -> str:
        return f"no core is free for another {self.noun}"

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
        self.blocked_by = "" if deeper > self.window else self._not_the_limit()
        if deeper <= self.window or (self.active, deeper) in self._failed:
            return None
        return SettingChange(self.active, deeper, self._why_more(look, busy))

    def _give_back(self, look: Observation) -> SettingChange | None:
        """Return added workers whose cores are another rank's due, never the job's own."""
        self._claims = self._claims + 1 if look.is_claimed else 0
        if look.cores is None or self._claims < self._next_claims:
            return None
        due = max(self.limits.base, count_affordable(look.cores, look.computing))
        if due >= self.active:
            return None
        window = min(self.window, self._window_for(due, look))
        why = "another rank of this host is late because of its input"
        change = SettingChange(due, window, why, is_trial=False)
        was, rates = (self.active, self.window), self._rates[-LOOKS:]
        self._gift = RunningTrial(change, was, rates, others=look.others)
        self.active, self.window = due, window
        self._claims = 0
        self._forget()
        return change

    def _judge_gift(self, gift: RunningTrial, look: Observation) -> SettingChange | None:
        """Take the workers up again if no other rank has gained what they are worth here."""
        gift.after.append(look.rate)
        if len(gift.after) < 2 * LOOKS:
            return None
        self._gift = None
        if max(_compare_others(gift, look), default=0.0) >= 1:
            self._next_claims = CLAIMS
            return None
        self._next_claims *= 2
        self.active, self.window = gift.was
        return SettingChange(*gift.was, "no other rank gained by fewer", is_trial=False)

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
        return SettingChange(active, window, f"{self.noun}s stood idle", is_trial=False)


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


def _compare_others(trial: RunningTrial, look: Observation) -> list[float]:
    """Of each other rank: how many times faster it and this one are since, multiplied.

    Below 1 the one has lost more than the other has gained. Ranks that step together gain and lose
    together; jobs of their own do not.
    """
    gain = statistics.fmean(trial.after[-LOOKS:]) / statistics.fmean(trial.before)
    before = dict(trial.others)
    return [gain * rate / before[name] for name, rate in look.others if rate and before.get(name)]
