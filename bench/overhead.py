"""What the hooks cost: main-thread CPU time per training step, hooks off against hooks on.

One process takes both measurements, in turns of two steps, so that a noisy machine disturbs both
alike. Stated is the mean of the differences without the outermost fiftieth on either side: a median
would leave out the calls that cost more, such as those that write what was held back. The step is
about 2.6 ms of real forward, backward and optimizer on one thread. `workers` steps get their
batches from a loader worker, `inline` steps fetch them in the trainer, which adds the fetch hook.
Hooks that are off still cost their wrapper, under a microsecond each. On a machine with other load
the caches are cold and everything costs more: compare the length of the step.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from fuelline.record.hooks.hook import Hook, QuickHook
from fuelline.record.hooks.install import Installation
from fuelline.record.spool import Spool

TURNS = 4000
WARM_UP = 2500
"""Steps after which the hooks take their quick path as often as they ever will."""
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


def switch(hooks: list[Hook], *, is_on: bool, quick_calls: dict[Hook, int]) -> None:
    for hook in hooks:
        hook.is_on = is_on
        if isinstance(hook, QuickHook):
            if is_on:
                hook.quick_calls = quick_calls.pop(hook, hook.quick_calls)
            else:
                quick_calls.setdefault(hook, hook.quick_calls)
                hook.quick_calls = 0


def measure_turn(step: Callable[[], None]) -> float:
    """CPU time of a step in microseconds, from two in a row."""
    start_ns = time.thread_time_ns()
    step()
    step()
    return (time.thread_time_ns() - start_ns) / 2e3


def compare(workers: int, hooks: list[Hook]) -> dict[str, float]:
    step = make_step(workers)
    for _ in range(WARM_UP):
        step()
    pairs, kept = [], {}
    for turn in range(TURNS):
        took_us = {}
        for is_on in (False, True) if turn % 2 else (True, False):
            switch(hooks, is_on=is_on, quick_calls=kept)
            took_us[is_on] = measure_turn(step)
        pairs.append((took_us[False], took_us[True]))
    return summarise(pairs)


def summarise(pairs: list[tuple[float, float]]) -> dict[str, float]:
    costs = sorted(hooked - plain for plain, hooked in pairs)
    inner = costs[len(costs) // 50 : -(len(costs) // 50)]
    error = 1.96 * statistics.stdev(inner) / len(inner) ** 0.5
    return {
        "plain_us_per_step": statistics.median(plain for plain, _ in pairs),
        "hooks_us_per_step": statistics.mean(inner),
        "hooks_us_error": error,
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
        installation.add_all(lambda name, action: action() if name in sys.modules else None)
        result = {
            "append_ns": min(rounds(Spool(f"{folder}/appends"))),
            "workers": compare(1, installation.hooks),
            "inline": compare(0, installation.hooks),
        }
        installation.uninstall()
    print(json.dumps(result, indent=2))
    return result


if __name__ == "__main__":
    main()
