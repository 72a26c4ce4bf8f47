"""Reads what a stretch of training cost: the workers' counters, the clocks, what the machine has.

One for each loader, over all its iterators; read once per stretch, not once per batch. Standard
library and torch's tensors only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from fuelline.fix.elastic.mailboxes import Usage
from fuelline.fix.elastic.observation import Observation
from fuelline.fix.elastic.resources import (
    find_free_memory,
    find_free_shared,
    find_queued,
)

__all__ = ["TrainingStretch", "UsageMeter", "add_room"]

LEAST_WORKER_BYTES = 32 << 20
"""A worker costs at least this much: 9 MB when parked (measured on 2 cores), more when it works."""
_NOTHING = Usage(0, 0, 0)


@dataclass
class TrainingStretch:
    """Of training, as its loop has seen it."""

    total_ns: int = 0
    wait_ns: int = 0
    batches: int = 0


class UsageMeter:
    """Counts from one `clear` to the next."""

    def __init__(self, cores: float) -> None:
        self._cores = cores
        self._slots: Any = None
        self._sched: tuple[list[int], float | None] = ([], None)
        self.clear()

    def clear(self) -> None:
        """A new stretch begins."""
        self._usage = self._slots.usage() if self._slots is not None else _NOTHING

    def follow(self, slots: Any) -> None:
        """Another iterator's counters, from 0: a stretch over both counts whole."""
        if slots is not self._slots:
            self._usage = Usage(*(-each for each in self._count_done()))
            self._slots = slots

    def is_varying(self) -> bool:
        """Whether a worker saw that what it gives depends on itself."""
        return bool(self._slots.is_varying())

    def _count_done(self) -> Usage:
        """By the workers in this stretch."""
        now = self._slots.usage() if self._slots is not None else _NOTHING
        return Usage(*(new - old for new, old in zip(now, self._usage, strict=True)))

    def read(self, stretch: TrainingStretch, pids: list[int]) -> Observation | None:
        """What became of the stretch; None if no worker has ended a fetch in it."""
        done = self._count_done()
        queued_s = self._find_queued(pids)
        if not done.fetches:
            return None
        busy_s = done.busy_ns / 1e9
        queued = None if queued_s is None else min(0.95, queued_s / max(busy_s, 1e-9))
        return Observation(
            seconds=stretch.total_ns / 1e9,
            batches=stretch.batches,
            wait_s=stretch.wait_ns / 1e9,
            busy_s=busy_s,
            cpu_s=done.cpu_ns / 1e9,
            fetches=done.fetches,
            queued=queued,
        )

    def _find_queued(self, pids: list[int]) -> float | None:
        now = find_queued(pids)
        before, self._sched = self._sched, (pids, now)
        if now is None or before[0] != pids or before[1] is None:
            return None
        return now - before[1]


def add_room(look: Observation, setting: tuple[int, int], pid: int, batch: Any) -> Observation:
    """How many more workers like this one, and batches like this, memory has room for.

    What is free is for all ranks of the host that wait for input.
    """
    active, window = setting
    found = find_free_memory(), find_free_shared()
    free, shared = (None if each is None else each // look.late for each in found)
    if free is not None:
        each = max(LEAST_WORKER_BYTES, _private_bytes(pid))
        look = replace(look, room=active + int(0.8 * free / each))
    size = max(1, count_bytes(batch))
    rooms = [0.5 * shared / size] if shared is not None else []
    rooms += [0.2 * free / size] if free is not None else []
    return replace(look, window_room=window + int(min(rooms))) if rooms else look


def count_bytes(batch: Any, depth: int = 4) -> int:
    """Bytes of the tensors in a batch."""
    if isinstance(batch, torch.Tensor):
        return int(batch.numel() * batch.element_size()) if batch.layout == torch.strided else 0
    if depth and type(batch) in {list, tuple, dict}:
        parts = batch.values() if type(batch) is dict else batch
        return sum(count_bytes(part, depth - 1) for part in parts)
    return 0


def _private_bytes(pid: int) -> int:
    """What a worker has of its own; `Private_Dirty:     1234 kB`."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:  # noqa: PTH123
            rows = [line.split() for line in file if line.startswith("Private")]
    except OSError:
        return 0
    return sum(int(row[1]) for row in rows) * 1024
