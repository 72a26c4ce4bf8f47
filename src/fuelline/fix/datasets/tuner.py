"""One dataset's pool of threads, changed while the job takes batches from it.

tf.data fixes the size of a pool when an iterator is made. An iterator can be saved, though, and a
new one over the same stages with a larger pool goes on from there: with what buffers hold, the
place in every file, and the seeds of every shuffle. So the batches stay what they are.

    iterator   |--- pool of 2 ---| save |--- pool of 16, restored ---|
    batches     0 1 2 3 4 5 6 7 8       9 10 11 12 13 14 15 ...

What cannot be saved (operations with state outside of tf.data, such as random ones or Python) is
left alone. A buffer at the end of a pipeline that has none comes with the next iterator.

How many threads is decided by the governor of loaders: each change is a trial, kept or taken back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from fuelline.fix.datasets import seam
from fuelline.fix.elastic.governor import BUSY, Governor
from fuelline.fix.elastic.observation import Observation, SettingChange, TurnLimits
from fuelline.fix.elastic.resources import count_cores, count_local_ranks, find_free_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.fix.elastic.journal import FixJournal

__all__ = ["FOLLOWED", "DatasetTuner", "Followed"]

FOLLOWED = "_fuelline_followed"
"""Attribute of an iterator."""
MOST_THREADS = 32
"""Of a pool: one that waits for storage costs a stack and the sample that it reads."""
LOOK_NS = 400_000_000
LEAST_BATCHES = 6
SETTLE_NS = 1_000_000_000
"""After a change, until tf.data has found how many calls it runs at once in the new pool."""
MOST_SAVED_BYTES = 256 << 20
"""Held in buffers, such as a shuffle's: more would hold the training up while it is copied."""
LEAST_FREE_BYTES = 1 << 30
MOST_QUEUED = 0.5
"""Of what the governor hears: threads that wait for storage need no core, so that neighbours which
take the cores are no reason to have fewer of them."""
PAUSE_NS = 500_000_000
"""A longer gap between two batches is a checkpoint or a validation, and no part of a look."""
_RUNS_CODE = ("Map", "Interleave", "Filter", "Reader", "TFRecord")
_AHEAD = ("Prefetch", "MapAndBatch")
_FIXED_TO_FILE = ("FileCache", "Snapshot", "Service")
"""Stages that hold a file or a server: two iterators over them meet."""


@dataclass
class Followed:
    """An iterator over a dataset that is tuned; kept in its dictionary."""

    tuner: DatasetTuner
    dataset: Any
    threads: set[int]
    """Native ids of those that came with it."""
    work: tuple[int, int, int] | None = None
    """As of the last look: time in calls, on cores, and waiting for one."""
    own_ns: int = 0
    """What the training takes for a batch by itself, as of the last account."""
    is_restored: bool = False
    """tf.data keeps no account of an iterator that was restored: its rate alone judges it."""


@dataclass
class _Taking:
    """Batches taken since the last look."""

    total_ns: int = 0
    wait_ns: int | None = 0
    """None where only tf.data knows, as under fit."""
    batches: int = 0


class DatasetTuner:
    """Of one dataset, over all its iterators."""

    def __init__(
        self, number: int, dataset: Any, journal: FixJournal, make: Callable[[Any], Any]
    ) -> None:
        self._journal = journal
        self._number = number
        self._make = make
        """A new iterator over a dataset, with the pool that is wanted now."""
        base = seam.find_own_pool(dataset)
        limits = TurnLimits(
            base=base,
            most=max(MOST_THREADS, base),
            cores=count_cores(ranks=count_local_ranks()),
            base_window=base,
            most_window=base,
        )
        self.governor = Governor(limits, base, base, noun="thread")
        self._limits = limits
        self.is_done = False
        """Whether the dataset is left alone from now on."""
        self._pending: SettingChange | None = None
        self._taken = 0
        self._taking = _Taking()
        self._last_ns = self._settle_until_ns = 0
        self._at: Followed | None = None
        """The iterator that batches were last taken from."""
        self._told = ""
        self._is_open = False
        journal.write(
            "served", number=number, loader=seam.describe(dataset), workers=base,
            most=limits.most, framework="tf.data",
        )  # fmt: skip

    @property
    def is_changed(self) -> bool:
        """Whether iterators are to be made otherwise than the job asks for."""
        return (self.governor.active, self.governor.window) != (
            self._limits.base,
            self._limits.base_window,
        )

    def dress(self, dataset: Any) -> Any:
        """The dataset that an iterator is made over now."""
        if not self.is_changed:
            return dataset
        is_buffered = self.governor.window > self._limits.base_window
        return seam.widen(dataset, self.governor.active, is_buffered=is_buffered)

    def start(self) -> None:
        """An iterator was made, as the setting of the moment has it."""
        self._at = None
        self._is_open = True
        change, self._pending = self._pending, None
        if change is not None:
            self._begin(change)

    def _begin(self, change: SettingChange) -> None:
        self._tell_change(change)
        self._at = None
        self._settle_until_ns = monotonic_ns() + SETTLE_NS

    def count(
        self, iterator: Any, at: Followed, began_ns: int, ended_ns: int, *, batches: int = 0
    ) -> None:
        """Batches were taken between two moments: one by waiting alone, or several in a step."""
        is_step = batches > 0
        batches = max(1, batches)
        self._taken += batches
        last_ns, self._last_ns = self._last_ns, ended_ns
        if self.is_done or ended_ns < self._settle_until_ns:
            return
        if at is not self._at or began_ns - last_ns > PAUSE_NS:
            self._at = at
            self._taking = _Taking()
            at.work = _count_work(seam.read_model(iterator), at.threads)
            return
        taking = self._taking
        taking.total_ns += ended_ns - last_ns
        taking.batches += batches
        if is_step:
            taking.wait_ns = None
        elif taking.wait_ns is not None:
            taking.wait_ns += ended_ns - began_ns
        if taking.total_ns >= LOOK_NS and taking.batches >= LEAST_BATCHES:
            self._look(iterator, at)

    def close(self) -> None:
        """The job ends."""
        if not self._is_open:
            return
        if self._pending is not None:
            self.governor.withdraw()
        self.governor.interrupt()
        self._tell_trials()
        self._journal.write(
            "end", loader=self._number, active=self.governor.active, window=self.governor.window,
            batches=self._taken,
        )  # fmt: skip

    def leave(self, why: str) -> None:
        """Change nothing more."""
        if not self.is_done:
            self.is_done = True
            self._journal.write("left", number=self._number, why=why)

    def _look(self, iterator: Any, at: Followed) -> None:
        model = seam.read_model(iterator)
        if model is None and not at.is_restored:
            self.leave("tf.data keeps no account of it (its autotuning is off)")
            return
        before, at.work = at.work, _count_work(model, at.threads)
        taking, self._taking = self._taking, _Taking()
        if before is None or self._pending is not None:
            return
        done = tuple(now - then for now, then in zip(at.work, before, strict=True))
        change = self.governor.hear(self._observe(taking, at, model, done))
        self._tell_trials()
        if model is not None:
            self._tell_blocked()
        if change is not None:
            self._apply(iterator, at, change, model)

    def _observe(
        self, taking: _Taking, at: Followed, model: Any, done: tuple[int, ...]
    ) -> Observation:
        busy_ns, cpu_ns, queued_ns = done
        wait_ns = taking.wait_ns
        if wait_ns is None:
            if model is not None:
                gaps = list(model.gap_times)[-taking.batches :]
                at.own_ns = 1000 * sum(gaps) // max(1, len(gaps))
            wait_ns = max(0, taking.total_ns - at.own_ns * taking.batches)
        active = self.governor.active
        free = find_free_memory()
        may_grow = busy_ns >= BUSY * active * taking.total_ns
        may_grow = may_grow and (free is None or free > LEAST_FREE_BYTES)
        self.governor.limits = replace(
            self._limits,
            most=self._limits.most if may_grow else active,
            most_window=2 * active if _is_on_demand(model) else active,
        )
        return Observation(
            seconds=taking.total_ns / 1e9,
            batches=taking.batches,
            wait_s=wait_ns / 1e9,
            busy_s=max(1, busy_ns) / 1e9,
            cpu_s=cpu_ns / 1e9,
            fetches=taking.batches,
            queued=min(MOST_QUEUED, queued_ns / max(1, busy_ns)) if model is not None else None,
        )

    def _apply(self, iterator: Any, at: Followed, change: SettingChange, model: Any) -> None:
        """Go on under another setting: at once if the iterator can be saved."""
        if change.window > self._limits.base_window or self._was_buffered(change):
            self._hold(change)
            return
        nodes = [] if model is None else list(model.nodes.values())
        is_fixed = any(word in node.name for word in _FIXED_TO_FILE for node in nodes)
        if is_fixed or sum(max(0, node.buffered_bytes) for node in nodes) > MOST_SAVED_BYTES:
            self._hold(change)
            return
        self._swap(iterator, at, change)

    def _was_buffered(self, change: SettingChange) -> bool:
        trial = self.governor.trial
        return trial is not None and trial.was[1] != change.window

    def _hold(self, change: SettingChange) -> None:
        """With the next iterator."""
        self._pending = change
        self._journal.write("held", loader=self._number, active=change.active, window=change.window)

    def _swap(self, iterator: Any, at: Followed, change: SettingChange) -> None:
        try:
            state = seam.save(iterator)
        except Exception as refusal:
            if type(refusal).__name__ not in {"FailedPreconditionError", "UnimplementedError"}:
                raise
            self.governor.withdraw()
            self.leave(
                f"it cannot be saved and taken up again ({_first_line(refusal)}), so that another "
                "pool could change what it gives"
            )
            return
        # Saved first: a new iterator takes the next seed of each shuffle; restoring gives it back.
        fresh = self._make(iterator)
        try:
            seam.restore(fresh, state)
        except Exception:
            seam.restore(iterator, state)
            raise
        setattr(iterator, seam.RESOURCE, getattr(fresh, seam.RESOURCE))
        at.threads = vars(fresh)[FOLLOWED].threads
        at.is_restored = True
        self._begin(change)

    def _tell_change(self, change: SettingChange) -> None:
        trial = self.governor.trial if change.is_trial else None
        self._journal.write(
            "change", loader=self._number, active=change.active, window=change.window,
            was=trial.was if trial else None, why=change.why, is_trial=change.is_trial,
        )  # fmt: skip

    def _tell_trials(self) -> None:
        for trial in self.governor.ended:
            self._journal.write(
                "trial", loader=self._number, active=trial.change.active,
                window=trial.change.window, was=trial.was, before=trial.before,
                after=trial.after, why=trial.change.why, verdict=trial.verdict,
            )  # fmt: skip
        self.governor.ended.clear()

    def _tell_blocked(self) -> None:
        why = self.governor.blocked_by
        if why != self._told:
            self._told = why
            self._journal.write("blocked", loader=self._number, why=why)


def _count_work(model: Any, threads: set[int]) -> tuple[int, int, int]:
    """Time in calls, on cores, and waiting for one: of a pool, since it began."""
    nodes = [] if model is None else model.nodes.values()
    busy_ns = sum(
        node.processing_time for node in nodes if any(word in node.name for word in _RUNS_CODE)
    )
    clocks = [clock for tid in threads if (clock := _read_clock(tid))]
    return busy_ns, sum(each[0] for each in clocks), sum(each[1] for each in clocks)


def _is_on_demand(model: Any) -> bool:
    """Whether a batch is begun only when it is asked for."""
    names = [] if model is None else [node.name for node in model.nodes.values()]
    return bool(names) and not any(word in name for word in _AHEAD for name in names)


def _first_line(refusal: Exception) -> str:
    """`PyFunc is stateful` of what TensorFlow says."""
    text = str(refusal).partition(" [Op:")[0]
    return text.rpartition("}} ")[2].strip().rstrip(".")[:120]


def _read_clock(tid: int) -> tuple[int, int] | None:
    """Nanoseconds that a thread has had a core and has waited for one; None if it is gone."""
    try:
        file = os.open(f"/proc/self/task/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        oncpu, queued, _ = os.read(file, 100).split()
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)
    return int(oncpu), int(queued)
