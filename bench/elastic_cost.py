"""What the elastic loader costs a job without need: `python -m bench.elastic_cost`, 11 minutes.

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
from fuelline.schema.student import compare_means
from fuelline.schema.wire import RUN_DIR_VARIABLE

TURN_S = 0.35
"""Of the plain loader, at least; the elastic one then takes as many batches."""
WAY_S = 14.0
MOST_TURNS, LEAST_TURNS = 16, 4
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
    *((size, workers, "fork") for size in SIZES for workers in (0, 1, 2, 4, 16)),
    *((size, 2, "spawn") for size in ("1 kB", "1 MB", "40 MB")),
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


class Compared(NamedTuple):
    """Both loaders, and how many times as much the elastic one has, with 95 % intervals."""

    plain: Cost
    elastic: Cost
    rate: tuple[float, float, float]
    cpu: tuple[float, float, float]


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
    told = {way: measure_once(way) for way in WAYS}
    results.write_section("elastic_cost", _section(told))
    worst_cpu = max(each.cpu[0] - 1 for each in told.values())
    worst_rate = min(each.rate[0] - 1 for each in told.values())
    surely = [way for way, each in told.items() if each.cpu[1] > 1 + BAR or each.rate[2] < 1 - BAR]
    return {
        "worst_cpu": worst_cpu, "worst_rate": worst_rate, "surely_worse": surely,
        "passed": not surely,
    }  # fmt: skip


def measure_once(way: tuple[str, int, str]) -> Compared:
    """In a process of its own, into which the elastic loader is put as `run --fix` does it."""
    with tempfile.TemporaryDirectory() as folder:
        elastic = {**put_on_path(), FIX_VARIABLE: "safe", RUN_DIR_VARIABLE: folder}
        own = [sys.executable, "-W", "ignore", "-m", "bench.elastic_cost", *map(str, way)]
        environ = {**os.environ, **elastic}
        done = subprocess.run(own, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    told = {
        name: [Cost(*turn) for turn in turns] for name, turns in json.loads(done.stdout).items()
    }
    plain, elastic_turns = told["plain"], told["elastic"]
    print(way, len(plain), *(turns[0] for turns in told.values()), file=sys.stderr, flush=True)
    return Compared(
        _usual(plain),
        _usual(elastic_turns),
        _compare([each.rate for each in plain], [each.rate for each in elastic_turns]),
        _compare([each.cpu_ms for each in plain], [each.cpu_ms for each in elastic_turns]),
    )


def _usual(turns: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*turns, strict=True)))


def _compare(plain: list[float], elastic: list[float]) -> tuple[float, float, float]:
    """Turn by turn, as the machine's speed changes: the mean ratio with its 95 % interval."""
    ratios = [new / old for old, new in zip(plain, elastic, strict=True)]
    ratio, (low, high) = compare_means([1.0] * len(ratios), ratios)
    return ratio, low, high


def run_turns(size: str, workers: int, start: str) -> dict[str, list[Cost]]:
    """In the job: the cost of each turn, plainly and with the elastic loader."""
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
    ahead = workers * _prefetch(size)
    begun = time.monotonic()
    count = _find_count(plain, ahead)
    turn_s = (time.monotonic() - begun) * (1 + ahead / count)
    turns = max(LEAST_TURNS, min(MOST_TURNS, int(WAY_S / (2 * turn_s))))
    both = [("plain", plain), ("elastic", elastic)]
    costs: dict[str, list[Cost]] = {"plain": [], "elastic": []}
    for turn in range(turns + 1):  # the first of each warms up
        for name, each in both if turn % 2 == 0 else reversed(both):
            costs[name].append(_drive(each, ahead, count))
    return {name: turns[1:] for name, turns in costs.items()}


def _prefetch(size: str) -> int:
    """Memory must have room for all that is under way, twice."""
    return 1 if size == "200 MB" else 2


def _make_loader(size: str, workers: int, start: str) -> Any:
    rows, shape = SIZES[size]
    own: dict[str, Any] = {}
    if workers:
        own = {"multiprocessing_context": start, "prefetch_factor": _prefetch(size)}
    return DataLoader(Rows(shape), rows, num_workers=workers, **own)


def _find_count(iterator: Any, ahead: int) -> int:
    """Batches of a turn."""
    for _ in range(ahead + 1):
        _use(next(iterator))
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < TURN_S or count < max(8, ahead):
        _use(next(iterator))
        count += 1
    return count


def _drive(iterator: Any, ahead: int, count: int) -> Cost:
    """Take some batches, after those that were made during the other's turn; what each cost."""
    for _ in range(ahead):
        _use(next(iterator))
    pids = [worker.pid for worker in getattr(iterator, "_workers", ())]
    workers_s, own_s, begun = _used_s(pids), time.process_time(), time.monotonic()
    for _ in range(count):
        _use(next(iterator))
    took_s, own_s = time.monotonic() - begun, time.process_time() - own_s
    workers_s = _used_s(pids) - workers_s
    return Cost(count / took_s, 1e3 * workers_s / count, 1e3 * own_s / count)


def _use(batch: torch.Tensor) -> None:
    batch.view(-1)[:: mmap.PAGESIZE // batch.element_size()].sum()


def _used_s(pids: list[int]) -> float:
    """`12345678 2345 99` (schedstat of a thread: ns running, ns waiting, slices)."""
    threads = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in threads) / 1e9


def _section(told: dict[tuple[str, int, str], Compared]) -> str:
    rows = "\n".join(_row(*way, each) for way, each in told.items())
    return f"""## Elastic loader without need

`python -m bench.elastic_cost`, {results.machine()}. A dataset that clones a tensor, as fast as
batches come, {LEAST_TURNS} to {MOST_TURNS} turns with the one loader and the other; CPU of all of a
job's processes, per batch; differences with 95 % intervals. Bar: not surely more than
{100 * BAR:.0f} % worse. Spawned workers are torch's own with and without; batches that are made in
the main process are watched now and then.

| batch | workers | plain, batches/s | elastic | | plain, CPU of workers + trainer | elastic | |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

Torch's loader makes new shared memory for every batch, whose pages the kernel clears and maps, and
gives back afterwards; here it is used again. Small batches save threads and handshakes: a worker
sends a batch in one system call, where torch's queue wakes a thread for each message and opens a
connection for each tensor."""


def _row(size: str, workers: int, start: str, told: Compared) -> str:
    parts = [
        f"{each.workers_ms:.2f} + {each.trainer_ms:.2f} ms" for each in (told.plain, told.elastic)
    ]
    return (
        f"| {size} | {workers or 'none'}{', spawned' if start == 'spawn' else ''} "
        f"| {told.plain.rate:.0f} | {told.elastic.rate:.0f} | {_more(told.rate)} "
        f"| {parts[0]} | {parts[1]} | {_more(told.cpu)} |"
    )


def _more(ratio: tuple[float, float, float]) -> str:
    mean, low, high = (100 * (each - 1) for each in ratio)
    return f"{mean:+.1f} % ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(run_turns(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
        sys.stdout.flush()
        os._exit(0)  # an epoch without an end
    else:
        print(main())
