"""Loaders with `num_workers=0`: watched for an epoch, then given workers if that changes nothing.

Code that runs in the main process may do what code in a worker cannot: draw from the training's
random streams, keep state in its dataset, hand out what is not a plain CPU tensor. Workers are
added between epochs only, and only if a whole epoch showed nothing of that, training waited,
and the sampler may be asked ahead (registry). Otherwise the loader stays as it is, and the
report says why.
"""

from __future__ import annotations

import math
from dataclasses import replace
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

import torch

from fuelline.fix.elastic import seam
from fuelline.fix.elastic.governor import HEADROOM, LOOKS, STARVED
from fuelline.fix.elastic.observation import RunningTrial, SettingChange
from fuelline.fix.elastic.purity import PurityCheck

if TYPE_CHECKING:
    from fuelline.fix.elastic.controller import LoaderController

__all__ = ["InlineController", "watch_inline"]

STRETCH_NS = 400_000_000
"""Of training, for one rate of the comparison with workers."""
LEAST_BATCHES = 16
_plain = seam.MainIterator


class InlineController:
    """Holds what an epoch in the main process has shown."""

    def __init__(self, controller: LoaderController, loader: Any) -> None:
        self.controller = controller
        self._has_workers = False
        self.why_not = ""
        self._attributes = _attributes(loader.dataset)
        self._total_ns = self._wait_ns = self._cpu_ns = self._batches = 0
        self._rates: list[float] = []
        self._stretch = [0, 0]
        self._last_ns = 0

    @property
    def active(self) -> bool:
        """Whether the next epoch has workers."""
        return self._has_workers and not self.controller.is_withdrawn

    def count(
        self, began_ns: int, ended_ns: int, batch: Any, *, cpu_ns: int, is_changed: bool
    ) -> None:
        """A batch was made in the main process, in `cpu_ns` on a core."""
        if is_changed and not self.why_not:
            self.why_not = "its dataset draws random numbers or counts in the main process"
        if not _is_plain(batch) and not self.why_not:
            self.why_not = "its batches are not plain CPU tensors"
        last_ns, self._last_ns = self._last_ns, ended_ns
        if not last_ns:
            return
        self._total_ns += ended_ns - last_ns
        self._wait_ns += ended_ns - began_ns
        self._cpu_ns += cpu_ns
        self._batches += 1
        self._stretch = [self._stretch[0] + 1, self._stretch[1] + ended_ns - last_ns]
        if self._stretch[1] >= STRETCH_NS:
            self._rates.append(self._stretch[0] / self._stretch[1] * 1e9)
            self._stretch = [0, 0]

    def end_epoch(self, loader: Any) -> None:
        """Decide about the next one."""
        self._last_ns = 0
        if _attributes(loader.dataset) != self._attributes and not self.why_not:
            self.why_not = "its dataset changes while it is read"
        starved = self._wait_ns / max(1, self._total_ns)
        is_known = self._batches >= LEAST_BATCHES and len(self._rates) >= LOOKS
        if self.why_not:
            self.controller.tell_left(f"num_workers=0, and {self.why_not}")
        elif is_known and starved > STARVED and not self.controller.is_withdrawn:
            self._add_workers(starved)

    def _add_workers(self, starved: float) -> None:
        governor = self.controller.governor
        own_ns = (self._total_ns - self._wait_ns) / self._batches
        fetch_ns = self._wait_ns / self._batches
        needed = math.ceil(HEADROOM * fetch_ns / max(own_ns, 1))
        computing = max(0.01, self._cpu_ns / max(1, self._wait_ns))
        room = math.ceil(governor.limits.cores / computing)  # those that wait need no core
        count = max(1, min(needed, room, governor.limits.most))
        window = min(2 * count, governor.limits.most_window)
        why = f"batches were made in the main process, {round(100 * starved)} % of its time"
        predicted = (own_ns + fetch_ns) / max(own_ns, fetch_ns / count)
        change = SettingChange(count, window, why, predicted)
        governor.limits = replace(governor.limits, base=count, base_window=window)
        governor.trial = RunningTrial(change, (0, 0), self._rates[-2 * LOOKS :])
        governor.active, governor.window = count, window
        self.controller.adopt(change)
        self._has_workers = True

    def leave(self) -> None:
        """The loader is gone."""
        self.controller.leave()


def watch_inline(loader: Any, controller: InlineController) -> Any:
    """Torch's own iterator, timed."""
    return _SingleProcessDataLoaderIter(loader, controller)


class _SingleProcessDataLoaderIter(_plain):  # type: ignore[misc, valid-type]
    """Named like torch's own: profilers and users see the name that they know."""

    def __init__(self, loader: Any, controller: InlineController) -> None:
        super().__init__(loader)
        self._fl_loader = loader
        self._fl_controller = controller
        self._fl_watcher = PurityCheck(loader.dataset)

    def _next_data(self) -> Any:
        controller, watcher = self._fl_controller, self._fl_watcher
        if controller.why_not:
            return self._fl_end(super()._next_data)
        began_ns = monotonic_ns()
        index = self._fl_end(self._next_index)
        cpu_ns = thread_time_ns()
        watcher.begin()
        batch = self._dataset_fetcher.fetch(index)
        is_changed = watcher.end(monotonic_ns() - began_ns)
        if self._pin_memory:
            batch = seam.pin_memory(batch, self._pin_memory_device)
        cpu_ns = thread_time_ns() - cpu_ns
        controller.count(began_ns, monotonic_ns(), batch, cpu_ns=cpu_ns, is_changed=is_changed)
        return batch

    def _fl_end(self, action: Any) -> Any:
        try:
            return action()
        except StopIteration:
            self._fl_controller.end_epoch(self._fl_loader)
            raise


def _attributes(dataset: Any) -> list[tuple[str, int]]:
    own = getattr(dataset, "__dict__", None)
    return [(name, id(value)) for name, value in own.items()] if type(own) is dict else []


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
