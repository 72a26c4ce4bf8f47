"""Jobs whose loaders have something to fix, or end badly: the first argument says how."""

import ctypes
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Slow(Dataset[torch.Tensor]):
    """A sample takes a while, without a core."""

    def __init__(self, size: int, seconds: float = 0.0, fault: str = "") -> None:
        self.size = size
        self.seconds = seconds
        self.fault = fault

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        if self.fault == "poison" and index == 25:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "crash" and index == 25:
            ctypes.string_at(0)
        if self.fault == "exit" and index == 25:
            os._exit(3)
        drawn = random.random() if self.fault == "draws" else 0.0
        return torch.full((8,), float(index)) + drawn


def say(text: Any) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def rows(loader: Any, seconds: float = 0.0) -> list[float]:
    taken = []
    for batch in loader:
        taken.append(float(batch[0, 0]))
        time.sleep(seconds)
    return taken


def children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(word) for word in text.split()]


def starved() -> None:
    """One worker of 10 ms a batch against steps of 3 ms."""
    loader = DataLoader(Slow(700, 0.01), num_workers=1)
    say(rows(loader, 0.003) == [float(number) for number in range(700)])


def starved_and_random() -> None:
    """The same, with random numbers drawn in the worker; two epochs."""
    torch.manual_seed(3)
    loader = DataLoader(Slow(300, 0.01, "draws"), num_workers=1)
    say(json.dumps([rows(loader, 0.002), rows(loader, 0.002)]))


def inline() -> None:
    """No workers, and batches that take longer than steps; two epochs."""
    loader = DataLoader(Slow(200, 0.01))
    say([rows(loader, 0.003) == [float(number) for number in range(200)] for _ in range(3)])


def killed_worker() -> None:
    loader = DataLoader(Slow(60), num_workers=2)
    taken = []
    for number, batch in enumerate(loader):
        taken.append(float(batch[0, 0]))
        if number == 10:
            os.kill(children()[0], signal.SIGKILL)
    say(taken == [float(number) for number in range(60)])


def faulty(fault: str) -> None:
    try:
        rows(DataLoader(Slow(60, fault=fault), num_workers=2))
    except RuntimeError as error:
        words = [word for word in str(error).split() if not word.strip("(),.").isdigit()]
        say(" ".join(words)[:60])


def faults() -> None:
    for fault in ("poison", "crash", "exit"):
        faulty(fault)


def killed_trainer() -> None:
    iterator = iter(DataLoader(Slow(200, 0.05), num_workers=2))
    next(iterator)
    say(json.dumps(children()))
    os.kill(os.getpid(), signal.SIGKILL)


def asks_its_worker() -> None:
    """A dataset that looks who makes it is not moved to other workers."""

    class Asking(Slow):
        def __getitem__(self, index: int) -> torch.Tensor:
            info = get_worker_info()
            return super().__getitem__(index) * 0 + (info.id if info is not None else -1)

    say(rows(DataLoader(Asking(300, 0.01), num_workers=2), 0.001))


class Stream(IterableDataset[torch.Tensor]):
    """Shares its samples out by worker, as an iterable dataset should."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        for number in range(first, 240, step):
            time.sleep(0.01)
            yield torch.full((8,), float(number))


def stream() -> None:
    """An iterable dataset that starves the training, over three epochs."""
    loader = DataLoader(Stream(), num_workers=1)
    epochs = [rows(loader, 0.002) for _ in range(3)]
    say([sorted(epoch) == [float(number) for number in range(240)] for epoch in epochs])


def persistent_and_random() -> None:
    """Random numbers in workers that live on."""
    torch.manual_seed(3)
    loader = DataLoader(Slow(250, 0.01, "draws"), num_workers=1, persistent_workers=True)
    say(json.dumps([rows(loader, 0.002) for _ in range(2)]))


def killed_rank() -> None:
    """Two ranks, one of which is killed in the middle; the other says whose files it saw."""
    loader = DataLoader(Slow(900, 0.01), num_workers=1)
    rank = os.fork()
    if not rank:
        rows(DataLoader(Slow(60, 0.01), num_workers=1), 0.003)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(rank, 0)
    left = _has_claim(rank)
    taken = rows(loader, 0.003)
    say(json.dumps([taken == [float(number) for number in range(900)], left, _has_claim(rank)]))


def _has_claim(pid: int) -> bool:
    shelf = Path(f"/dev/shm/fuelline-{os.geteuid()}")
    return any(shelf.glob(f"*/{pid}-*"))


def no_loader() -> None:
    say("trained on nothing")


def nothing_to_fix() -> None:
    """A loader that is never asked for a batch, and one that cannot be started."""
    iter(DataLoader(Slow(10), num_workers=2))
    say("never asked for one")
    dataset: Any = Slow(4)
    dataset.hook = lambda: None
    try:
        rows(DataLoader(dataset, num_workers=1, multiprocessing_context="spawn"))
    except Exception as error:  # noqa: BLE001
        say(type(error).__name__)


JOBS: dict[str, Callable[[], None]] = {
    job.__name__: job
    for job in (
        starved,
        starved_and_random,
        inline,
        killed_worker,
        faults,
        killed_trainer,
        asks_its_worker,
        stream,
        persistent_and_random,
        killed_rank,
        no_loader,
        nothing_to_fix,
    )
}

if __name__ == "__main__":
    JOBS[sys.argv[1]]()
