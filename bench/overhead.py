"""What the hooks cost: main-thread CPU time per training step, plain against hooked.

One process takes both measurements, in short blocks that alternate, so that a noisy machine
disturbs both alike. The step is about 2.6 ms of real forward, backward and optimizer on one thread.
`workers` steps get their batches from a loader worker, `inline` steps fetch them in the trainer,
which adds the reading of the thread's counters. Medians are compared; the interval is a bootstrap
over the blocks. On a machine with other load the caches are cold and everything costs more.
"""

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from fuelline.record.hooks.install import Installation
from fuelline.record.spool import Spool

BLOCKS = 60
STEPS = 40
WARM_UP = 5
WIDTH, LAYERS = 64, 30
"""About 2.6 ms of one core here, in many small operators, as on the main thread of a GPU job."""


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), index % 7 / 7)


def make_step(workers: int) -> Callable[[], None]:
    model = torch.nn.Sequential(
        *(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)), torch.nn.Linear(WIDTH, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(Rows(), batch_size=16, num_workers=workers))

    def step() -> None:
        loss = model(next(batches)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure_block(step: Callable[[], None]) -> float:
    """Median CPU time of a step in this block, in microseconds."""
    taken = []
    for number in range(STEPS + WARM_UP):
        start_ns = time.thread_time_ns()
        step()
        if number >= WARM_UP:
            taken.append(time.thread_time_ns() - start_ns)
    return statistics.median(taken) / 1e3


def compare(workers: int, installation: Installation) -> dict[str, float]:
    step = make_step(workers)
    pairs = []
    for number in range(BLOCKS):
        plain_first = number % 2 == 0
        pair = {}
        for is_hooked in (not plain_first, plain_first):
            if is_hooked:
                installation.add_all(lambda name, action: name in sys.modules and action())
            pair[is_hooked] = measure_block(step)
            installation.uninstall()
        pairs.append((pair[False], pair[True]))
    return summarise(pairs)


def summarise(pairs: list[tuple[float, float]]) -> dict[str, float]:
    costs = [hooked - plain for plain, hooked in pairs]
    rng = random.Random(0)
    boots = sorted(statistics.median(rng.choices(costs, k=len(costs))) for _ in range(1000))
    return {
        "plain_us_per_step": statistics.median(plain for plain, _ in pairs),
        "hooks_us_per_step": statistics.median(costs),
        "hooks_us_low": boots[25],
        "hooks_us_high": boots[974],
    }


def measure_append(spool: Spool, count: int = 200_000) -> float:
    """CPU nanoseconds for one record, growth of the file included."""
    start_ns = time.thread_time_ns()
    for number in range(count):
        spool.append(1, number, 5, 1, 2, 3, 4, 5, 1)
    return (time.thread_time_ns() - start_ns) / count


def rounds(spool: Spool, number: int = 5) -> Iterator[float]:
    for _ in range(number):
        yield measure_append(spool)


def main() -> dict[str, Any]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Spool(f"{folder}/spool"))
        result = {
            "append_ns": min(rounds(Spool(f"{folder}/appends"))),
            "workers": compare(1, installation),
            "inline": compare(0, installation),
        }
    print(json.dumps(result, indent=2))
    return result


if __name__ == "__main__":
    main()
