"""What the hooks add to one collective: CPU of the calling thread, hooks off against hooks on.

A group of one gloo rank, so that nobody is waited for and the call itself is short. One process
takes both measurements, in turns of some calls, so that a noisy machine disturbs both alike; stated
is the mean of the differences without the outermost fiftieth. The bar: 10 us.

    python -m bench.collective_overhead
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from fuelline.record.hooks.torch.install import Installation
from fuelline.record.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.record.hooks.hook import Hook

TURNS = 3000
CALLS = 10
"""In a row, so that reading the clock does not count."""


def main() -> dict[str, Any]:
    """Microseconds per collective, by kind."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        installation = Installation(Spool(f"{folder}/spool"))
        installation.add_all(lambda name, action: action() if name in sys.modules else None)
        torch.ones(1, requires_grad=True).sum().backward()  # makes this the trainer's thread
        figures = {name: compare(call, installation.hooks) for name, call in calls().items()}
        installation.uninstall()
        dist.destroy_process_group()
        size_bytes = sum(file.stat().st_size for file in Path(f"{folder}/spool").iterdir())
    return {**figures, "spool_bytes": size_bytes}


def calls() -> dict[str, Callable[[], object]]:
    """What is called; through the module, because that is where the hooks are."""
    data = torch.ones(64)
    parts = [torch.ones(64)]

    def wait() -> None:
        handle = dist.all_reduce(data, async_op=True)
        if handle is not None:
            handle.wait()

    return {
        "all_reduce": lambda: dist.all_reduce(data),
        "all_reduce_and_wait": wait,
        "all_gather": lambda: dist.all_gather(parts, data),
        "barrier": lambda: dist.barrier(),  # noqa: PLW0108 - looked up at each call
    }


def compare(call: Callable[[], object], hooks: list[Hook]) -> dict[str, float]:
    """CPU of one call without hooks, and what they add."""
    for _ in range(500):
        call()
    pairs = []
    for turn in range(TURNS):
        took_us = {}
        for is_on in (False, True) if turn % 2 else (True, False):
            for hook in hooks:
                hook.is_on = is_on
            took_us[is_on] = _measure(call)
        pairs.append((took_us[False], took_us[True]))
    costs = sorted(hooked - plain for plain, hooked in pairs)
    inner = costs[len(costs) // 50 : -(len(costs) // 50)]
    return {
        "plain_us": statistics.median(plain for plain, _ in pairs),
        "hooks_us": statistics.mean(inner),
        "hooks_us_error": 1.96 * statistics.stdev(inner) / len(inner) ** 0.5,
    }


def _measure(call: Callable[[], object]) -> float:
    start_ns = time.thread_time_ns()
    for _ in range(CALLS):
        call()
    return (time.thread_time_ns() - start_ns) / CALLS / 1e3


if __name__ == "__main__":
    print(main())
