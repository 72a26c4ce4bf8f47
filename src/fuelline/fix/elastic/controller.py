"""One loader's controller: it measures the loop, asks the governor, and lets the iterator act.

It lives as long as the loader, over all its epochs and iterators. Its price is a few additions a
batch; once in `LOOK_NS` of training it reads the workers' counters and what the machine has left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from fuelline.fix.elastic.channel import make_room
from fuelline.fix.elastic.gauge import TrainingStretch, UsageMeter, add_room
from fuelline.fix.elastic.governor import LOOKS, STARVED, Governor
from fuelline.fix.elastic.reach import MOST_REMOTE
from fuelline.fix.messages import say

if TYPE_CHECKING:
    from fuelline.fix.elastic.host import HostBudget
    from fuelline.fix.elastic.journal import FixJournal
    from fuelline.fix.elastic.observation import (
        Observation,
        RunningTrial,
        SettingChange,
        TurnLimits,
    )
    from fuelline.fix.elastic.reach import OtherHosts

__all__ = ["LoaderController", "LoaderHistory", "LoaderRules"]

LOOK_NS = 400_000_000
"""Training between two looks: six of them show a change of 5 % in steps that vary by 10 %."""
LEAST_BATCHES = 6
SHORTER = 4
"""Times shorter are the first looks: a job that waits most of its time shows that at once, and a
number of workers that was chosen too early is judged by looks of full length."""
PAUSE_NS = 500_000_000
"""A gap between batches longer than this and than ten usual ones is a checkpoint, not work."""
ROOM_LOOKS = 8
"""Looks from one count of open files to the next: it takes longer the more there are."""
START_NS = 20_000_000
"""To start and end one more worker: 16 of them take 310 ms on two cores."""
STEADY_LOOKS = 4
"""In a row, until a reason counts as one that holds."""


@dataclass
class LoaderHistory:
    """What loaders of one kind have shown; a job may make a new one for each epoch."""

    iterators: int = 0
    was_starved: bool = False


@dataclass(frozen=True)
class LoaderRules:
    """What the user allows, and what is known of a loader before it runs."""

    allow_random: bool
    is_varying: bool
    """A generator hangs on the dataset."""
    is_stream: bool
    spare: int


class LoaderController:
    """Holds a loader's governor from epoch to epoch."""

    def __init__(
        self,
        number: int,
        limits: TurnLimits,
        rules: LoaderRules,
        journal: FixJournal,
        past: LoaderHistory | None = None,
        *,
        crew: OtherHosts | None = None,
        host: HostBudget | None = None,
    ) -> None:
        self._host = host
        self._past = past if past is not None else LoaderHistory()
        self._crew = crew
        self._number = number
        self._rules = rules
        self._journal = journal
        self._limits = limits
        self._own_prefetch = max(1, limits.base_window // limits.base)
        self.governor = Governor(limits, limits.base, limits.base_window)
        self.is_varying = rules.is_varying
        self._is_inline = False
        self.is_closed = False
        self.is_withdrawn = False
        """Whether workers did not help a loader that had none: its next epoch has none again."""
        self._is_left = False
        self._is_between = True
        self._looks = 0
        self._pending: SettingChange | None = None
        self._last_block = ""
        self._blocks = 0
        self._gauge = UsageMeter(limits.cores)
        self._stretch = TrainingStretch()
        self._last_ns = 0
        self._settle_at = 0
        self._usual_ns = 0
        self._taken = 0
        self._slowness = 1.0
        """Of a fetch on another host, against one here while there was nobody else."""
        self._begun_ns = self._epoch_ns = 0

    @property
    def regular(self) -> int:
        """Workers that torch starts itself; more than the job's own only between epochs."""
        is_whole = self.is_varying or self._rules.is_stream
        return self.governor.active if is_whole else self._limits.base

    @property
    def spare(self) -> int:
        """Workers to park. From the third epoch on there are none if the training never waited."""
        if self._rules.is_stream or self._is_bound():
            return 0
        is_open = self._past.iterators <= 2 or self._past.was_starved
        reserve = max(0, self.governor.limits.most - self.regular) if is_open else 0
        return reserve + (self._crew is not None)  # who is sent on an errand works no more

    @property
    def most_remote(self) -> int:
        """Workers on other hosts that may come to an iterator, those that are lost included."""
        return MOST_REMOTE if self._crew is not None else 0

    @property
    def prefetch(self) -> int:
        """For torch's constructor; the window decides."""
        return self._own_prefetch

    @property
    def window(self) -> int:
        """Batches under way."""
        return self.governor.window

    def _is_bound(self) -> bool:
        """Whether workers may be changed between epochs only."""
        return (self.is_varying and not self._rules.allow_random) or self._rules.is_stream

    def start_with(self, usable: list[int]) -> int:
        """Active workers of a new epoch."""
        return max(1, min(self.governor.active, len(usable)))

    def take_up(self) -> None:
        """Serve another iterator, maybe of another loader of the same dataset."""
        self._past.iterators += 1
        self._raise_most()
        self.is_closed = self._is_left = False

    def _raise_most(self) -> None:
        """Start as many workers with the next epoch as the last one wanted and can pay for.

        With n times the workers an epoch takes an n-th of its time, and starting each takes its
        own: the sum is least where both are equal.
        """
        governor, limits = self.governor, self.governor.limits
        if not self._epoch_ns or limits.most_window <= limits.base_window:
            return  # nothing is known yet, or no more batches may be under way
        paid = math.isqrt(self._epoch_ns * governor.active // START_NS)
        most = min(governor.wanted, paid, limits.most_window)
        if most > limits.most:
            governor.limits = replace(limits, most=most)

    def begin_epoch(self, iterator: Any) -> None:
        """A new epoch: a change that waited for it is in force."""
        self._is_between = False
        self._begun_ns = monotonic_ns()
        self._gauge.follow(iterator._fl_context.slots)
        self._last_ns = 0
        self._settle_at = 0
        if self._pending is not None:
            self._tell_change(self._pending)
            self._pending = None
            self._clear()
        if self._crew is not None and self.governor.remote:
            self._crew.renew(iterator)
            self._reopen(iterator)

    def end_epoch(self) -> None:
        """The iterator is done with."""
        self._epoch_ns = monotonic_ns() - self._begun_ns
        self._tell_trials()
        self._is_between = True
        if self._is_left:
            self.close()

    def leave(self) -> None:
        """The loader is gone; an iterator of its may go on."""
        self._is_left = True
        if self._is_between:
            self.close()

    def count(self, iterator: Any, began_ns: int, ended_ns: int, batch: Any) -> None:
        """A batch was waited for from the one to the other time."""
        self._taken += 1
        last_ns, self._last_ns = self._last_ns, ended_ns
        if not last_ns or iterator._num_yielded < self._settle_at or self._pending is not None:
            return
        own_ns = began_ns - last_ns
        if own_ns > PAUSE_NS and own_ns > 10 * self._usual_ns > 0:
            return
        self._usual_ns = own_ns
        stretch = self._stretch
        stretch.total_ns += ended_ns - last_ns
        stretch.wait_ns += ended_ns - began_ns
        stretch.batches += 1
        scale = SHORTER if self._looks < LOOKS else 1
        if scale * stretch.total_ns >= LOOK_NS and scale * stretch.batches >= LEAST_BATCHES:
            self._look(iterator, batch)

    def lose(self, iterator: Any, how: str) -> None:
        """A worker is gone."""
        usable = iterator._fl_usable()
        self.governor.lose(len(usable))
        self._journal.write("lost", loader=self._number, how=how, left=len(usable))
        self._pending = None
        self._settle(iterator)

    def lose_remote(self, iterator: Any) -> None:
        """A worker of another host is gone."""
        if self._crew is None:
            return
        left = len(iterator._fl_remote)
        how = self._crew.lose()
        self.governor.lose_remote(left)
        say(f"a worker on another host is lost ({how}); training goes on, {left} there are left")
        self._journal.write("remote_lost", loader=self._number, how=how, left=left)
        self._settle(iterator)

    def end_errand(self, iterator: Any, result: Any) -> None:
        """A parked worker is back."""
        if self._crew is not None and self._crew.hear(iterator, result):
            self._reopen(iterator)

    def _reopen(self, iterator: Any) -> None:
        """Workers on other hosts have what this iterator's workers have: as many as before."""
        governor = self.governor
        if self._crew is None or not governor.remote:
            return
        remote = min(governor.remote, self._crew.open(iterator, governor.remote))
        if remote:
            iterator.fl_resize(iterator.fl_active, governor.window, remote, self._slowness)
            self._settle(iterator)

    def _leave_remote(self, iterator: Any, why: str) -> None:
        """Work goes on without other hosts."""
        if self._crew is None:
            return
        self._crew.leave(why)
        governor = self.governor
        governor.figures, governor.is_remote_refused = None, True
        if governor.remote:
            governor.lose_remote(0)
            iterator.fl_resize(governor.active, governor.window, 0)
            self._settle(iterator)

    def _clear(self) -> None:
        self._stretch = TrainingStretch()
        self._gauge.clear()

    def _settle(self, iterator: Any) -> None:
        """Count from the first batch on that is issued from now on."""
        self._settle_at = iterator._send_idx
        self._clear()

    def _look(self, iterator: Any, batch: Any) -> None:
        look = self._observe(iterator, batch)
        self._looks += 1
        self._clear()
        self._note_variation(iterator)
        if self._looks % ROOM_LOOKS == 1:
            self._make_room()
        if look is None:
            return
        self._past.was_starved |= look.starved > STARVED
        if self._crew is not None and not self.governor.remote:
            self.governor.figures = self._crew.figures
        figures = self.governor.figures
        if figures is not None and not self.governor.remote:
            self._slowness = figures.fetch_s * look.fetches / max(1e-9, look.busy_s)
        change = self.governor.hear(look)
        if self._crew is not None:
            self._crew.step(iterator, self.governor.count_missing(look))
        self._tell_trials()
        if change is not None:
            self._act(iterator, change)
        else:
            self._tell_block()
        governor = self.governor
        if governor.is_remote_refused and governor.figures is not None and not governor.remote:
            self._leave_remote(iterator, governor.remote_refusal)

    def _tell_block(self) -> None:
        """What holds, not what a job at the brink shows now and then."""
        is_other = self.governor.blocked_by != self._last_block
        self._blocks = self._blocks + 1 if is_other else 0
        if self._blocks >= STEADY_LOOKS:
            self._blocks, self._last_block = 0, self.governor.blocked_by
            self._journal.write("blocked", loader=self._number, why=self._last_block)

    def _act(self, iterator: Any, change: SettingChange) -> None:
        if self._is_bound() and change.active != iterator.fl_active:
            self._pending = change
            self._journal.write("held", loader=self._number, active=change.active, why=change.why)
            return
        if not change.active:
            self.is_withdrawn = True  # the epoch ends with the workers that it has
            self.governor.active, self.governor.window = (
                iterator.fl_active,
                self._limits.base_window,
            )
            return
        remote = change.remote
        if remote and self._crew is not None:
            remote = min(remote, self._crew.open(iterator, remote))
        if remote is not None:
            self.governor.remote = remote
        iterator.fl_resize(change.active, change.window, self.governor.remote, self._slowness)
        self._tell_change(change)
        self._settle(iterator)

    def _make_room(self) -> None:
        try:
            raised = make_room()
        except OSError:
            return  # no /proc here, or not allowed
        if raised is not None:
            self._journal.write(
                "setting",
                loader=self._number,
                setting=f"ulimit -n {raised[1]}",
                why=f"it was {raised[0]}, and open files came near it",
            )

    def _note_variation(self, iterator: Any) -> None:
        if not self.is_varying and self._gauge.is_varying():
            self.is_varying = True
            is_late = self.governor.active != self._limits.base or self.governor.remote > 0
            self._leave_remote(
                iterator, "its dataset draws random numbers, or keeps state, in each worker"
            )
            self._journal.write("varies", loader=self._number, is_late=is_late)

    def _observe(self, iterator: Any, batch: Any) -> Observation | None:
        usable = iterator._fl_usable()[: self.governor.active]
        look = self._gauge.read(self._stretch, [iterator._workers[each].pid for each in usable])
        if look is not None and self._host is not None:
            governor = self.governor
            is_asking = governor.is_asking or look.starved > STARVED
            look = self._host.weigh(self._number, look, governor.active, is_asking=is_asking)
        if look is None or look.starved <= STARVED:
            return look
        setting = (self.governor.active, self.governor.window)
        return add_room(look, setting, iterator._workers[0].pid, batch)

    def _tell_change(self, change: SettingChange) -> None:
        was = self.governor.trial.was if change.is_trial and self.governor.trial else None
        self._journal.write(
            "change",
            loader=self._number,
            active=change.active,
            window=change.window,
            was=was,
            why=change.why,
            is_trial=change.is_trial,
            remote=self.governor.remote,
            was_remote=self._was_remote(change),
            predicted=change.predicted,
        )

    def _was_remote(self, change: SettingChange) -> int:
        trial = self.governor.trial
        return trial.was_remote if change.is_trial and trial else self.governor.remote

    def _tell_trials(self) -> None:
        for trial in self.governor.ended:
            self._tell_trial(trial)
        self.governor.ended.clear()

    def _tell_trial(self, trial: RunningTrial) -> None:
        self._journal.write(
            "trial",
            loader=self._number,
            active=trial.change.active,
            window=trial.change.window,
            was=trial.was,
            before=trial.before,
            after=trial.after,
            why=trial.change.why,
            verdict=trial.verdict,
            remote=trial.was_remote if trial.change.remote is None else trial.change.remote,
            was_remote=trial.was_remote,
            waited=trial.waited,
            waits=trial.waits,
            predicted=trial.change.predicted,
        )

    def find_cores(self) -> float:
        """For all workers of a loader that has none yet."""
        return self.governor.limits.cores if self._host is None else self._host.find_cores()

    def is_for(self, workers: int, prefetch: int | None) -> bool:
        """Whether a loader still has the settings that it was admitted with."""
        if self._is_inline:
            return workers == 0
        return workers == self._limits.base and prefetch == self._own_prefetch

    def adopt(self, change: SettingChange) -> None:
        """Serve a loader that had no workers, from its next epoch on."""
        self._limits = self.governor.limits
        self._own_prefetch = max(1, self._limits.base_window // self._limits.base)
        self._is_inline = True
        self._pending = change

    def tell_left(self, why: str) -> None:
        """The loader is not served after all; written down once."""
        if why != self._last_block:
            self._last_block = why
            self._journal.write("left", number=self._number, why=why)

    def close(self) -> None:
        """The job ends, or the loader does."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._host is not None:
            self._host.leave(self._number)
        if self._pending is not None:
            self.governor.withdraw()
        self.governor.interrupt()
        self._tell_trials()
        if self._crew is not None:
            self._crew.close()
        self._journal.write(
            "end",
            loader=self._number,
            active=0 if self.is_withdrawn else self.governor.active,
            window=self.governor.window,
            batches=self._taken,
            remote=self.governor.remote,
        )
