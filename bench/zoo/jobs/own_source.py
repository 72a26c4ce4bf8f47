"""Trains from a source of batches that somebody wrote themselves: no loader of any framework.

A generator, a thread with a queue, a pool of threads or processes, futures, a coroutine. What a
sample costs is the fault: reading it, computing on it, or waiting for a service.
"""

import asyncio
import itertools
import multiprocessing
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import trainer
from own_source_work import WORK, Maker
from torch import Tensor

Batch = tuple[Tensor, Tensor]


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
