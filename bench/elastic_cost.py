"""What the elastic loader costs a job that does not need it: `python -m bench.elastic_cost`, 5 min.

One process has both loaders, torch's plain one and the elastic one, over the same data, and takes a
few batches from the one and then from the other, in turns, so that a machine that changes its
speed changes both. Counted is the CPU of the training process and of all workers, spare ones
included. Which core a process lands on and where its memory lies differ from start to start by more
than the cost: so this is done in several processes, and the lowest and highest are told.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from torch.utils.data import dataloader

from bench import fix_job, results
from fuelline.fix.job_site import put_on_path
from fuelline.schema.diagnosis.fixes import FIX_VARIABLE
from fuelline.schema.wire import RUN_DIR_VARIABLE

PROCESSES = 8
TURNS = 40
BATCHES = 60
SETTLE_S = 0.05
"""Until the workers have made what they were asked for."""
STEP_S = 0.005
WORKERS = 2
BAR = 0.01


def main() -> dict[str, Any]:
    """Measure, write the section."""
    told = [measure_once() for _ in range(PROCESSES)]
    figures = {name: statistics.median(each[name] for each in told) for name in told[0]}
    more = [each["more"] for each in told]
    figures |= {"lowest": min(more), "highest": max(more)}
    results.write_section("elastic_cost", _section(figures))
    return {**figures, "passed": figures["more"] <= BAR}


def measure_once() -> dict[str, float]:
    """In a process of its own, into which the elastic loader is put as `run --fix` does it."""
    with tempfile.TemporaryDirectory() as folder:
        elastic = {**put_on_path(), FIX_VARIABLE: "safe", RUN_DIR_VARIABLE: folder}
        own = [sys.executable, "-W", "ignore", "-m", "bench.elastic_cost", "--inside"]
        environ = {**os.environ, **elastic}
        done = subprocess.run(own, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def run_turns() -> dict[str, float]:
    """In the job: milliseconds of CPU per batch, plainly and with the elastic loader."""
    options = argparse.Namespace(kind="healthy", workers=WORKERS, prefetch=2, pin=False)
    plain = dataloader._MultiProcessingDataLoaderIter(fix_job.make_loader(options))
    elastic = iter(fix_job.make_loader(options))
    if type(elastic) is type(plain):
        raise SystemExit("the elastic loader is not installed in this process")
    for each in (plain, elastic):
        _drive(each)
    costs: dict[str, list[tuple[float, float]]] = {"plain": [], "elastic": []}
    both = [("plain", plain), ("elastic", elastic)]
    for turn in range(TURNS):
        for name, each in both if turn % 2 == 0 else reversed(both):
            costs[name].append(_drive(each))
    return _account(costs)


def _account(costs: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """Each part's usual cost, and the difference of neighbours in time to the plain loader's."""
    told = {
        f"{name}_{part}_ms": statistics.median(turn[at] for turn in turns)
        for name, turns in costs.items()
        for at, part in enumerate(("trainer", "workers"))
    }
    sums = {name: [sum(turn) for turn in turns] for name, turns in costs.items()}
    pairs = zip(sums["plain"], sums["elastic"], strict=True)
    usual_ms = statistics.median(sums["plain"])
    more = statistics.median(new - old for old, new in pairs) / usual_ms
    return {**told, "plain_ms": usual_ms, "more": more}


def _drive(iterator: Any) -> tuple[float, float]:
    """Take some batches; CPU milliseconds for each of them, of the trainer and of its workers."""
    pids = [worker.pid for worker in iterator._workers]
    workers_s, own_s = _used_s(pids), time.process_time()
    for _ in range(BATCHES):
        next(iterator)
        time.sleep(STEP_S)
    own_s = time.process_time() - own_s
    time.sleep(SETTLE_S)
    workers_s = _used_s(pids) - workers_s
    return 1e3 * own_s / BATCHES, 1e3 * workers_s / BATCHES


def _used_s(pids: list[int]) -> float:
    """`12345678 2345 99` (schedstat of a thread: ns running, ns waiting, slices)."""
    threads = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in threads) / 1e9


def _section(told: dict[str, float]) -> str:
    more, lowest, highest = (f"{100 * told[name]:+.1f}" for name in ("more", "lowest", "highest"))
    return f"""## Elastic loader without need

`python -m bench.elastic_cost`, {results.machine()}. A healthy job with {WORKERS} workers,
{PROCESSES} jobs, in each {TURNS} turns of {BATCHES} batches; CPU of all of a job's processes.

| CPU a batch | plain | elastic | bar |
| --- | --- | --- | --- |
| training process | {told["plain_trainer_ms"]:.2f} ms | {told["elastic_trainer_ms"]:.2f} ms | |
| workers | {told["plain_workers_ms"]:.2f} ms | {told["elastic_workers_ms"]:.2f} ms | |
| more, together | | {more} % (jobs: {lowest} to {highest}) | +{100 * BAR:.0f} % |

What is saved are threads and handshakes: a worker sends a batch and its tensors' descriptors in one
system call, where torch's queue wakes a thread for each message and opens a connection for each
tensor."""


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        print(json.dumps(run_turns()))
    else:
        print(main())
