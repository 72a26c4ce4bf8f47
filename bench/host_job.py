"""Ranks on one emulated host with uneven input; what bench.host_budget starts and measures.

A core is a token: work takes one, sleeps for a slice, and puts it back, so that ranks compete for
cores as they would, on a machine that has fewer. The governor's clocks are those of the emulated
cores: a worker's time on a core, its time in the queue for one, and how many cores there are. All
else is the loader as it is. Ranks wait for each other after every step unless they are jobs of
their own.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

from fuelline.fix.elastic import entry, gauge, host, mailboxes, registry

SLICE_S = 0.005
LONGEST_END_S = 10.0
PLACES = 1 << 15
"""Of processes, by the end of their number."""


class Situation(NamedTuple):
    """A host and the ranks on it."""

    cores: int
    work_s: tuple[tuple[float, ...], ...]
    """Of a batch, by rank; several are parts of the run of equal length."""
    own_s: float
    """Of a step, without input."""
    is_joint: bool = True


class Mode(NamedTuple):
    """Who chooses the numbers of workers."""

    governed: str
    """`shared`, `separate`, or empty: these numbers, plainly."""
    workers: tuple[int, ...]


class _Work(Dataset[torch.Tensor]):
    def __init__(self, situation: Situation, rank: int, shared: _Shared) -> None:
        self._works, self._shared, self._rank = situation.work_s[rank], shared, rank

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        place = self._rank * PLACES + os.getpid() % PLACES
        left_s = self._works[min(self._shared.phase.value, len(self._works) - 1)]
        while left_s > 1e-9:
            asked_s = time.monotonic()
            os.read(self._shared.tokens[0], 1)
            got_s = time.monotonic()
            time.sleep(min(SLICE_S, left_s))
            used_s = time.monotonic() - got_s
            os.write(self._shared.tokens[1], b"c")
            self._shared.queued[place] += got_s - asked_s
            _Clock.used_s += used_s
            left_s -= used_s
        return torch.full((4,), float(index))


class _Clock:
    """Of this process on emulated cores."""

    used_s = 0.0


class _Shared:
    def __init__(self, situation: Situation) -> None:
        ranks = len(situation.work_s)
        self.tokens = os.pipe()
        os.write(self.tokens[1], b"c" * situation.cores)
        self.queued = multiprocessing.RawArray("d", ranks * PLACES)
        self.phase = multiprocessing.RawValue("i", 0)
        self.steps = multiprocessing.RawArray("q", ranks)
        self.barrier = multiprocessing.Barrier(ranks)
        self.is_over = multiprocessing.RawValue("b", 0)


def _emulate(situation: Situation, rank: int, shared: _Shared, governed: str, shelf: str) -> None:
    """Let the loader see the emulated host."""
    cores = float(situation.cores)
    own = slice(rank * PLACES, (rank + 1) * PLACES)
    patches: Any = (mailboxes, gauge, registry, host)
    for module in patches:
        if hasattr(module, "thread_time_ns"):
            module.thread_time_ns = lambda: int(_Clock.used_s * 1e9)
        if hasattr(module, "find_queued"):
            module.find_queued = lambda _pids: sum(shared.queued[own])
        if hasattr(module, "count_cores"):
            module.count_cores = lambda ranks=1: cores / ranks
    host.SHELF = shelf
    if governed == "separate":
        patches[2].open_host = lambda: None
    os.environ["LOCAL_WORLD_SIZE"] = str(len(situation.work_s) if situation.is_joint else 1)
    entry.install(f"{shelf}/run", "safe")


def _train(situation: Situation, rank: int, shared: _Shared, mode: Mode, shelf: str) -> None:
    if mode.governed:
        _emulate(situation, rank, shared, mode.governed, shelf)
    torch.manual_seed(rank)
    work: Any = _Work(situation, rank, shared)
    loader = DataLoader(work, batch_size=None, num_workers=mode.workers[rank])
    for _ in loader:
        time.sleep(situation.own_s)
        if situation.is_joint and not _meet(shared):
            break
        shared.steps[rank] += 1
        if shared.is_over.value:
            shared.barrier.abort()
            break


def _meet(shared: _Shared) -> bool:
    """Wait for the other ranks; False if one of them has ended."""
    try:
        shared.barrier.wait()
    except threading.BrokenBarrierError:
        return False
    return True


def run(situation: Situation, mode: Mode, seconds: float) -> list[list[float]]:
    """Steps a second of each rank, second by second."""
    shared = _Shared(situation)
    with tempfile.TemporaryDirectory() as shelf:
        ranks = [
            multiprocessing.Process(target=_train, args=(situation, rank, shared, mode, shelf))
            for rank in range(len(situation.work_s))
        ]
        (Path(shelf) / "run").mkdir()
        for each in ranks:
            each.start()
        rates = _watch(situation, shared, seconds)
        shared.is_over.value = 1
        for each in ranks:
            each.join(LONGEST_END_S)
            each.kill()
            each.join()
        if os.environ.get("HOST_JOB_SHOWN"):
            for path in sorted((Path(shelf) / "run" / "fix").glob("*")):
                sys.stderr.write(f"{path.name}\n{path.read_text()}\n")
    for end in shared.tokens:
        os.close(end)
    return rates


def _watch(situation: Situation, shared: _Shared, seconds: float) -> list[list[float]]:
    phases = max(map(len, situation.work_s))
    began_s = last_s = time.monotonic()
    last, rates = list(shared.steps), []
    while last_s - began_s < seconds:
        time.sleep(1.0)
        now_s, now = time.monotonic(), list(shared.steps)
        rates.append([(new - old) / (now_s - last_s) for new, old in zip(now, last, strict=True)])
        last_s, last = now_s, now
        shared.phase.value = int(phases * (now_s - began_s) / seconds)
    return rates


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = json.loads(sys.argv[1])
    place = Situation(*given["situation"])
    print(json.dumps([run(place, Mode(*mode), given["seconds"]) for mode in given["modes"]]))
