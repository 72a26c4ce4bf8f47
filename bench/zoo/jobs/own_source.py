"""Trains from a source of batches that somebody wrote themselves: no loader of any framework.

A generator, a thread with a queue, a pool of threads or processes, futures, a coroutine. What a
sample costs is the fault: reading it, computing on it, or waiting for a service.
"""

import asyncio
import itertools
import multiprocessing
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trainer
from torch import Tensor

Batch = tuple[Tensor, Tensor]
FEATURES = 64


def read(path: Path) -> np.ndarray:
    """A file from its disk."""
    return np.frombuffer(path.read_bytes()[:FEATURES], np.uint8).astype(np.float32)


def compute(path: Path, rounds: int = 4) -> np.ndarray:
    """Array operations, which let other threads run."""
    values = np.frombuffer(path.read_bytes(), np.uint8).astype(np.float32)
    grid = np.resize(values, (256, 256))
    for _ in range(rounds):
        grid = np.sqrt(np.abs(np.sin(grid) * 3 + 1))
    return grid.ravel()[:FEATURES].astype(np.float32)


def parse(path: Path) -> np.ndarray:
    """Python, of which one thread of a process runs at a time."""
    total = 0
    for byte in path.read_bytes()[:20_000]:
        total = (total * 31 + byte) % 65_521
    return np.full(FEATURES, total / 65_521, np.float32)


def ask(path: Path) -> np.ndarray:
    """A client that keeps to a rate."""
    time.sleep(0.004)
    return np.full(FEATURES, len(path.name), np.float32)


WORK: dict[str, Callable[[Path], np.ndarray]] = {
    "read": read,
    "compute": compute,
    "parse": parse,
    "ask": ask,
    "none": lambda path: np.full(FEATURES, len(path.name), np.float32),
}


class Maker:
    """Makes the batch of a given number."""

    def __init__(self, folder: Path, work: str, batch: int) -> None:
        self.paths = sorted(path for path in folder.rglob("*") if path.is_file())
        self.work, self.batch = work, batch

    def __call__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Samples and labels."""
        chosen = [
            self.paths[(number * self.batch + at) % len(self.paths)] for at in range(self.batch)
        ]
        samples = np.stack([WORK[self.work](path) for path in chosen])
        return samples, np.arange(self.batch) % 10


def to_torch(batch: tuple[np.ndarray, np.ndarray]) -> Batch:
    """What the loop expects."""
    return torch.from_numpy(batch[0]), torch.from_numpy(batch[1])


def by_generator(maker: Maker, _workers: int) -> Iterator[Batch]:
    """The loop itself makes each batch when it asks for it."""
    for number in itertools.count():
        yield to_torch(maker(number))


def by_threads(maker: Maker, workers: int) -> Iterator[Batch]:
    """Threads fill a queue."""
    ready: queue.Queue[Any] = queue.Queue(4)
    numbers = itertools.count()

    def fill() -> None:
        while True:
            ready.put(maker(next(numbers)))

    for _ in range(workers):
        threading.Thread(target=fill, daemon=True).start()
    while True:
        yield to_torch(ready.get())


def by_simple_queue(maker: Maker, workers: int) -> Iterator[Batch]:
    """The same with a queue that is written in C, and a bound kept by hand."""
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    room = threading.Semaphore(4)
    numbers = itertools.count()

    def fill() -> None:
        while True:
            room.acquire()
            ready.put(maker(next(numbers)))

    for _ in range(workers):
        threading.Thread(target=fill, daemon=True).start()
    while True:
        batch = ready.get()
        room.release()
        yield to_torch(batch)


def by_imap(maker: Maker, workers: int) -> Iterator[Batch]:
    """A pool of processes."""
    with multiprocessing.Pool(workers) as pool:
        yield from map(to_torch, pool.imap(maker, range(100_000_000), chunksize=1))


def by_pool(maker: Maker, workers: int) -> Iterator[Batch]:
    """The same with a bound on what is under way."""
    with multiprocessing.Pool(workers) as pool:
        under_way = [pool.apply_async(maker, (number,)) for number in range(2 * workers)]
        for number in itertools.count(2 * workers):
            batch = under_way.pop(0).get()
            under_way.append(pool.apply_async(maker, (number,)))
            yield to_torch(batch)


def by_futures(maker: Maker, workers: int, kind: Any = ThreadPoolExecutor) -> Iterator[Batch]:
    """An executor."""
    with kind(workers) as executor:
        under_way: list[Future[Any]] = [executor.submit(maker, n) for n in range(2 * workers)]
        for number in itertools.count(2 * workers):
            batch = under_way.pop(0).result()
            under_way.append(executor.submit(maker, number))
            yield to_torch(batch)


def by_process_futures(maker: Maker, workers: int) -> Iterator[Batch]:
    """An executor of processes."""
    yield from by_futures(maker, workers, ProcessPoolExecutor)


def _serve(maker: Maker, first: int, step: int, ready: Any) -> None:
    for number in itertools.count(first, step):
        ready.put(maker(number))


def by_processes(maker: Maker, workers: int) -> Iterator[Batch]:
    """Processes of their own with a queue of multiprocessing."""
    ready: Any = multiprocessing.Queue(4)
    for first in range(workers):
        multiprocessing.Process(
            target=_serve, args=(maker, first, workers, ready), daemon=True
        ).start()
    while True:
        yield to_torch(ready.get())


def by_pipe(maker: Maker, _workers: int) -> Iterator[Batch]:
    """One process at the other end of a pipe."""
    ours, theirs = multiprocessing.Pipe()

    def serve() -> None:
        for number in itertools.count():
            theirs.send(maker(number))

    multiprocessing.Process(target=serve, daemon=True).start()
    while True:
        yield to_torch(ours.recv())


def by_coroutines(maker: Maker, workers: int) -> Iterator[Batch]:
    """An event loop that is asked for one batch at a time; work goes to its threads."""
    loop = asyncio.new_event_loop()

    async def stream() -> AsyncIterator[Any]:
        under_way = [loop.run_in_executor(None, maker, number) for number in range(workers)]
        for number in itertools.count(workers):
            batch = await under_way.pop(0)
            under_way.append(loop.run_in_executor(None, maker, number))
            yield batch

    batches = stream()
    while True:
        yield to_torch(loop.run_until_complete(batches.__anext__()))


SOURCES = {
    "generator": by_generator,
    "threads": by_threads,
    "simplequeue": by_simple_queue,
    "imap": by_imap,
    "pool": by_pool,
    "futures": by_futures,
    "process-futures": by_process_futures,
    "processes": by_processes,
    "pipe": by_pipe,
    "coroutines": by_coroutines,
}


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--source", choices=SOURCES, default="generator")
    parser.add_argument("--work", choices=WORK, default="read")
    args = parser.parse_args()
    torch.manual_seed(0)
    trainer.train(SOURCES[args.source](Maker(args.data, args.work, args.batch), args.workers), args)


if __name__ == "__main__":
    main()
