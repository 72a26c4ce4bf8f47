"""What the elastic loader costs a job that does not need it: `python -m bench.elastic_cost`, 5 min.

By size of a batch and by number of workers. One process has both loaders, torch's plain one and the
elastic one, over the same data, a tensor that is cloned, and takes batches from the one and then
from the other, in turns, as fast as they come, so that a machine that changes its speed changes
both. Of each batch a byte per page is read, as a training reads it. Counted are batches a second,
and the CPU of the training process and of all workers, spare ones included. The elastic loader
watches as ever and may not act: what its decisions bring is measured by bench.fix_gain.
"""

from __future__ import annotations

import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, dataloader

from bench import results
from fuelline.fix.job_site import put_on_path
from fuelline.schema.diagnosis.fixes import FIX_VARIABLE
from fuelline.schema.wire import RUN_DIR_VARIABLE

TURNS = 10
TURN_S = 0.35
"""Of the plain loader; the elastic one then takes as many batches."""
SETTLE_S = 0.05
"""Until the workers have made what they were asked for."""
BAR = 0.01
SIZES = {
    "1 kB": (64, (4,)),
    "100 kB": (64, (3, 12, 11)),
    "1 MB": (64, (3, 36, 36)),
    "10 MB": (64, (3, 116, 112)),
    "40 MB": (64, (3, 229, 229)),
    "200 MB": (64, (3, 512, 509)),
}
"""Rows of a batch, and shape of a row of float32."""
WAYS = [
    *((size, 2, "fork") for size in SIZES),
    *((size, 0, "fork") for size in ("1 kB", "1 MB")),
    *((size, 1, "fork") for size in ("100 kB", "10 MB")),
    *((size, 16, "fork") for size in ("1 kB", "1 MB", "10 MB")),
    ("1 MB", 2, "spawn"),
]


class Cost(NamedTuple):
    """Of one turn."""

    rate: float
    workers_ms: float
    trainer_ms: float

    @property
    def cpu_ms(self) -> float:
        """Per batch, of all processes."""
        return self.workers_ms + self.trainer_ms


class Rows(Dataset[Any]):
    """Costs next to nothing."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.row = torch.zeros(shape)

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        return self.row.clone()


def main() -> dict[str, Any]:
    """Measure, write the section."""
    told = [(*way, *measure_once(way)) for way in WAYS]
    results.write_section("elastic_cost", _section(told))
    worst_cpu = max(elastic.cpu_ms / plain.cpu_ms - 1 for *_, plain, elastic in told)
    worst_rate = min(elastic.rate / plain.rate - 1 for *_, plain, elastic in told)
    passed = worst_cpu <= BAR and worst_rate >= -BAR
    return {"worst_cpu": worst_cpu, "worst_rate": worst_rate, "passed": passed}


def measure_once(way: tuple[str, int, str]) -> tuple[Cost, Cost]:
    """In a process of its own, into which the elastic loader is put as `run --fix` does it."""
    with tempfile.TemporaryDirectory() as folder:
        elastic = {**put_on_path(), FIX_VARIABLE: "safe", RUN_DIR_VARIABLE: folder}
        own = [sys.executable, "-W", "ignore", "-m", "bench.elastic_cost", *map(str, way)]
        environ = {**os.environ, **elastic}
        done = subprocess.run(own, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(done.stdout)
    return Cost(*told["plain"]), Cost(*told["elastic"])


def run_turns(size: str, workers: int, start: str) -> dict[str, Cost]:
    """In the job: the usual cost of a turn, plainly and with the elastic loader."""
    kinds = (
        dataloader._MultiProcessingDataLoaderIter,
        dataloader._SingleProcessDataLoaderIter,
    )
    plain = kinds[not workers](_make_loader(size, workers, start))
    elastic = iter(_make_loader(size, workers, start))
    if (type(elastic) is type(plain)) != (start == "spawn"):
        raise SystemExit("the elastic loader is not installed in this process")
    if workers and start == "fork":
        elastic._fl_controller.governor.hear = lambda _: None
    count = _find_count(plain)
    both = [("plain", plain), ("elastic", elastic)]
    for _, each in both:
        _drive(each, count)
    costs: dict[str, list[Cost]] = {"plain": [], "elastic": []}
    for turn in range(TURNS):
        for name, each in both if turn % 2 == 0 else reversed(both):
            costs[name].append(_drive(each, count))
    return {
        name: Cost(*map(statistics.median, zip(*turns, strict=True)))
        for name, turns in costs.items()
    }


def _make_loader(size: str, workers: int, start: str) -> Any:
    rows, shape = SIZES[size]
    context = start if workers else None
    return DataLoader(Rows(shape), rows, num_workers=workers, multiprocessing_context=context)


def _find_count(iterator: Any) -> int:
    """Batches of a turn."""
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < TURN_S or count < 8:
        _use(next(iterator))
        count += 1
    return count


def _drive(iterator: Any, count: int) -> Cost:
    """Take some batches; what each of them cost."""
    pids = [worker.pid for worker in getattr(iterator, "_workers", ())]
    workers_s, own_s, begun = _used_s(pids), time.process_time(), time.monotonic()
    for _ in range(count):
        _use(next(iterator))
    took_s, own_s = time.monotonic() - begun, time.process_time() - own_s
    time.sleep(SETTLE_S)
    workers_s = _used_s(pids) - workers_s
    return Cost(count / took_s, 1e3 * workers_s / count, 1e3 * own_s / count)


def _use(batch: torch.Tensor) -> None:
    batch.view(-1)[:: mmap.PAGESIZE // batch.element_size()].sum()


def _used_s(pids: list[int]) -> float:
    """`12345678 2345 99` (schedstat of a thread: ns running, ns waiting, slices)."""
    threads = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in threads) / 1e9


def _section(told: list[Any]) -> str:
    rows = "\n".join(_row(*each) for each in told)
    return f"""## Elastic loader without need

`python -m bench.elastic_cost`, {results.machine()}. A dataset that clones a tensor, as fast as
batches come; medians of {TURNS} turns with the one loader and the other; CPU of all of a job's
processes, per batch. Bar: at most {100 * BAR:.0f} % worse. Spawned workers are torch's own with
and without; batches that are made in the main process are watched for an epoch.

| batch | workers | plain, batches/s | elastic | | plain, CPU of workers + trainer | elastic | |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

Torch's loader makes new shared memory for every batch, whose pages the kernel clears and maps, and
gives back afterwards; here it is used again. Small batches save threads and handshakes: a worker
sends a batch in one system call, where torch's queue wakes a thread for each message and opens a
connection for each tensor."""


def _row(size: str, workers: int, start: str, plain: Cost, elastic: Cost) -> str:
    more = (elastic.rate / plain.rate - 1, elastic.cpu_ms / plain.cpu_ms - 1)
    rate, cpu = (f"{100 * each:+.0f} %" for each in more)
    parts = [f"{each.workers_ms:.2f} + {each.trainer_ms:.2f} ms" for each in (plain, elastic)]
    return (
        f"| {size} | {workers or 'none'}{', spawned' if start == 'spawn' else ''} "
        f"| {plain.rate:.0f} | {elastic.rate:.0f} | {rate} | {parts[0]} | {parts[1]} | {cpu} |"
    )


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(run_turns(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
        sys.stdout.flush()
        os._exit(0)  # an epoch without an end
    else:
        print(main())
