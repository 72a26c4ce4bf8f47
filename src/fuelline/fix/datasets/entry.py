"""Follows every tf.data iterator of a job under `run --fix`, in Python loops and under Keras's fit.

Runs in the user's job. A fault of ours leaves the dataset at hand as it is, for good; exceptions of
the job pass through.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from _thread import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from fuelline.fix.datasets import seam
from fuelline.fix.datasets.tuner import FOLLOWED, DatasetTuner, Followed
from fuelline.fix.elastic.journal import FixJournal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DatasetFixes", "install", "install_fit"]

TUNER = "_fuelline_tuner"
"""Attribute of a dataset."""
MOST_DATASETS = 64


def install(run_dir: str) -> DatasetFixes:
    """Follow the iterators of this process; called once their module is there."""
    fixes = DatasetFixes(FixJournal(f"{run_dir}/fix"))
    owner = sys.modules[seam.ITERATORS].OwnedIterator
    fixes.follow(owner)
    atexit.register(fixes.close)
    os.register_at_fork(after_in_child=fixes.forget)
    return fixes


def install_fit(fixes: DatasetFixes) -> None:
    """Follow the steps of Keras's fit, which takes batches within a graph."""
    owner = sys.modules[seam.TRAINER].TensorFlowTrainer
    original = owner.make_train_function

    @functools.wraps(original)
    def make(model: Any, *args: Any, **kwargs: Any) -> Any:
        before = model.train_function
        result = original(model, *args, **kwargs)
        made = model.train_function
        if made is not None and made is not before:
            model.train_function = fixes.wrap_step(made, model)
        return result

    owner.make_train_function = make


class DatasetFixes:
    """The tuners of one process."""

    def __init__(self, journal: FixJournal) -> None:
        self._journal = journal
        self._tuners: list[DatasetTuner] = []
        self._create: Callable[..., None] = lambda *_: None
        self._within: set[int] = set()
        """Threads in a step of fit, or in `next()`: what they take there is counted once."""
        self._is_refused = False

    def follow(self, owner: Any) -> None:
        """Wrap the class of iterators."""
        create, take, get = owner._create_iterator, owner.__next__, owner.get_next  # noqa: SLF001
        self._owner = owner

        @functools.wraps(create)
        def create_iterator(iterator: Any, dataset: Any) -> None:
            tuner = self._find(dataset)
            if tuner is None:
                create(iterator, dataset)
                return
            threads = _list_threads()
            create(iterator, self._dress(tuner, dataset))
            vars(iterator)[FOLLOWED] = Followed(tuner, dataset, _list_threads() - threads)
            self._guard(tuner, tuner.start)

        owner._create_iterator = create_iterator  # noqa: SLF001
        owner.__next__ = self._wrap_take(take)
        owner.get_next = self._wrap_take(get)

    def _wrap_take(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def take(iterator: Any) -> Any:
            ident = get_ident()
            found = vars(iterator).get(FOLLOWED)
            if found is None or ident in self._within or not seam.is_eager():
                return original(iterator)
            self._within.add(ident)
            began_ns = monotonic_ns()
            try:
                batch = original(iterator)
            finally:
                self._within.discard(ident)
            now_ns = monotonic_ns()
            tuner = found.tuner
            self._guard(tuner, lambda: tuner.count(iterator, found, began_ns, now_ns))
            return batch

        return take

    def wrap_step(self, original: Callable[[Any], Any], model: Any) -> Callable[[Any], Any]:
        """A train function of Keras."""

        @functools.wraps(original)
        def step(iterator: Any) -> Any:
            found = getattr(iterator, "__dict__", {}).get(FOLLOWED)
            ident = get_ident()
            if found is None or not seam.is_eager():
                return original(iterator)
            self._within.add(ident)
            began_ns = monotonic_ns()
            try:
                result = original(iterator)
            finally:
                self._within.discard(ident)
            now_ns = monotonic_ns()
            tuner, batches = found.tuner, int(getattr(model, "steps_per_execution", 1) or 1)
            self._guard(
                tuner, lambda: tuner.count(iterator, found, began_ns, now_ns, batches=batches)
            )
            return result

        return step

    def _find(self, dataset: Any) -> DatasetTuner | None:
        """The tuner of a dataset that may be changed."""
        tuner = getattr(dataset, "__dict__", {}).get(TUNER)
        if tuner is not None or self._is_refused:
            return tuner
        try:
            return self._admit(dataset)
        except Exception as misfit:  # noqa: BLE001 - the guard: the job's iterator must work
            self._journal.write("left", loader="tf.data", why=f"{type(misfit).__name__}: {misfit}")
            return None

    def _admit(self, dataset: Any) -> DatasetTuner | None:
        if not seam.is_eager() or len(self._tuners) >= MOST_DATASETS:
            return None
        why = seam.find_missing()
        if why:
            self._is_refused = True
            self._journal.write("left", loader="every tf.data pipeline", why=why)
            return None
        if not seam.keeps_order(dataset):
            why = "the job allows any order (deterministic=False), so that no two runs are the same"
            self._journal.write("left", loader=seam.describe(dataset), why=why)
            return None
        tuner = DatasetTuner(len(self._tuners) + 1, dataset, self._journal, self._make_again)
        vars(dataset)[TUNER] = tuner
        self._tuners.append(tuner)
        return tuner

    def _make_again(self, iterator: Any) -> Any:
        """Another iterator over the same dataset, as the tuner wants it now."""
        return self._owner(vars(iterator)[FOLLOWED].dataset)

    def _dress(self, tuner: DatasetTuner, dataset: Any) -> Any:
        try:
            return tuner.dress(dataset)
        except Exception as misfit:  # noqa: BLE001 - the guard: the job's iterator must work
            tuner.leave(f"{type(misfit).__name__}: {misfit}")
            return dataset

    def _guard(self, tuner: DatasetTuner, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as fault:  # noqa: BLE001 - the guard of everything in the job's loop
            tuner.leave(f"{type(fault).__name__}: {fault}"[:200])

    def forget(self) -> None:
        """A forked child follows nothing of its parent's."""
        for tuner in self._tuners:
            tuner.is_done = True
        self._tuners = []

    def close(self) -> None:
        """The job ends."""
        for tuner in self._tuners:
            tuner.close()


def _list_threads() -> set[int]:
    """Native ids of this process's threads."""
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}  # noqa: PTH208 - /proc
    except OSError:
        return set()
