"""Loaders with `num_workers=0`: watched for an epoch, then given workers if that changes nothing.

Code that runs in the main process may do what code in a worker cannot: draw from the training's
random streams, keep state in its dataset, hand out what is not a plain CPU tensor. Workers are
added between epochs only, and only if a whole epoch showed nothing of that, training waited,
and the sampler may be asked ahead (registry). Otherwise the loader stays as it is, and the
report says why.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

import torch

from fuelline.fix.elastic import seam
from fuelline.fix.elastic.governor import LOOKS, STARVED
from fuelline.fix.elastic.observation import RunningTrial, SettingChange
from fuelline.fix.elastic.purity import PurityCheck, list_values
from fuelline.schema.worker_count import count_affordable, count_needed

if TYPE_CHECKING:
    from fuelline.fix.elastic.controller import LoaderController

__all__ = ["InlineController", "watch_inline"]

STRETCH_NS = 400_000_000
"""Of training, for one rate of the comparison with workers."""
LEAST_BATCHES = 16
LONGEST_SKIP = 400
"""Batches from one that is watched to the next: 130 us with cold caches, a third of a percent of
batches that take 100 us."""
_plain = seam.MainIterator


class InlineController:
    """Holds what epochs in the main process have shown."""

    def __init__(self, controller: LoaderController, loader: Any) -> None:
        self.controller = controller
        self._has_workers = self._is_refused = False
        self._attributes = list(map(id, list_values(loader.dataset)))
        self._forget()

    def _forget(self) -> None:
        self._total_ns = self._wait_ns = self._cpu_ns = self._batches = self._looks = 0
        self._rates: list[float] = []

    @property
    def active(self) -> bool:
        """Whether the next epoch has workers."""
        return self._has_workers and not self.controller.is_withdrawn

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to watch: these batches stay in the main process."""
        return self._is_refused or self.controller.is_withdrawn

    @property
    def is_fed(self) -> bool:
        """Whether training hardly waits, as far as it was watched."""
        is_long = len(self._rates) >= LOOKS
        return is_long and self._wait_ns <= STARVED * self._total_ns

    def begin_epoch(self) -> None:
        """What was watched of earlier ones counts until it is enough to decide by."""
        if self.is_fed:
            self._forget()
        self._mark = self._stretch = (0, 0)

    def count(self, batches: int, began_ns: int, ended_ns: int, cpu_ns: int) -> None:
        """One more batch was watched, which is this manieth; it stands for all since the last."""
        (last, last_ns), self._mark = self._mark, (batches, ended_ns)
        self._looks += 1
        if not last_ns:
            self._stretch = self._mark
            return
        count, took_ns = batches - last, ended_ns - last_ns
        self._total_ns += took_ns
        self._wait_ns += min(took_ns, count * (ended_ns - began_ns))
        self._cpu_ns += min(took_ns, count * cpu_ns)
        self._batches += count
        if ended_ns - self._stretch[1] >= STRETCH_NS:
            begun, begun_ns = self._stretch
            self._rates.append((batches - begun) / (ended_ns - begun_ns) * 1e9)
            self._stretch = self._mark

    def refuse(self, why: str) -> None:
        """Leave the loader to torch."""
        self._is_refused = True
        self.controller.tell_left(f"num_workers=0, and {why}")

    def end_epoch(self, loader: Any) -> None:
        """Decide about the next one."""
        starved = self._wait_ns / max(1, self._total_ns)
        is_known = self._looks >= LEAST_BATCHES and len(self._rates) >= LOOKS
        if list(map(id, list_values(loader.dataset))) != self._attributes:
            self.refuse("its dataset changes while it is read")
        elif is_known and starved > STARVED:
            self._add_workers(starved)

    def _add_workers(self, starved: float) -> None:
        governor = self.controller.governor
        own_ns = (self._total_ns - self._wait_ns) / self._batches
        fetch_ns = self._wait_ns / self._batches
        cores = self.controller.find_cores()
        room = count_affordable(cores, self._cpu_ns / max(1, self._wait_ns))
        count = max(1, min(count_needed(fetch_ns, own_ns), room, governor.limits.most))
        window = min(2 * count, governor.limits.most_window)
        why = f"batches were made in the main process, {round(100 * starved)} % of its time"
        change = SettingChange(count, window, why)
        governor.limits = replace(governor.limits, base=count, base_window=window)
        governor.trial = RunningTrial(change, (0, 0), self._rates[-2 * LOOKS :])
        governor.active, governor.window = count, window
        self.controller.adopt(change)
        self._has_workers = True

    def leave(self) -> None:
        """The loader is gone."""
        self.controller.leave()


def watch_inline(loader: Any, controller: InlineController) -> Any:
    """Torch's own iterator, timed now and then."""
    controller.begin_epoch()
    return _SingleProcessDataLoaderIter(loader, controller)


class _SingleProcessDataLoaderIter(_plain):  # type: ignore[misc, valid-type]
    """Named like torch's own: profilers and users see the name that they know.

    Quick batches are watched as often as purity is looked at: together less than 1 % of their time.
    Once there is nothing more to find out in this epoch, it is torch's own by class as well.
    """

    def __init__(self, loader: Any, controller: InlineController) -> None:
        super().__init__(loader)
        self._fl_loader = loader
        self._fl_controller = controller
        self._fl_watcher = PurityCheck(loader.dataset, LONGEST_SKIP)

    def _next_data(self) -> Any:
        watcher = self._fl_watcher
        try:
            if watcher.skip:
                watcher.skip -= 1
                return super()._next_data()
            return self._fl_watch(watcher)
        except StopIteration:
            self._fl_controller.end_epoch(self._fl_loader)
            raise

    def _fl_watch(self, watcher: PurityCheck) -> Any:
        controller = self._fl_controller
        began_ns, cpu_ns = monotonic_ns(), thread_time_ns()
        index = self._next_index()
        watcher.begin()
        batch = self._dataset_fetcher.fetch(index)
        is_changed = watcher.end(monotonic_ns() - began_ns)
        if is_changed:
            controller.refuse("its dataset draws random numbers or counts in the main process")
        elif not _is_plain(batch):
            controller.refuse("its batches are not plain CPU tensors")
        if self._pin_memory:
            batch = seam.pin_memory(batch, self._pin_memory_device)
        cpu_ns = thread_time_ns() - cpu_ns
        controller.count(self._num_yielded, began_ns, monotonic_ns(), cpu_ns)
        if controller.is_done or controller.is_fed:
            self.__class__ = _plain
        return batch


def _is_plain(batch: Any, depth: int = 4) -> bool:
    """Whether a batch goes through a pipe and comes out the same."""
    kind = type(batch)
    if kind is torch.Tensor:
        return batch.is_cpu and not batch.requires_grad and not batch.is_pinned()
    if kind in {list, tuple}:
        return depth > 0 and all(_is_plain(part, depth - 1) for part in batch)
    if kind is dict:
        return depth > 0 and all(_is_plain(part, depth - 1) for part in batch.values())
    return kind in {int, float, str, bytes, bool, type(None)}
