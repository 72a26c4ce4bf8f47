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
from fuelline.fix.adapters import put_on_path
from fuelline.schema.fixes import FIX_VARIABLE
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
    more = [each["more"] for each in told]
    figures = {
        "plain_ms": statistics.median(each["plain_ms"] for each in told),
        "more": statistics.median(more),
        "lowest": min(more),
        "highest": max(more),
    }
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
    costs: dict[Any, list[float]] = {plain: [], elastic: []}
    for turn in range(TURNS):
        for each in (plain, elastic) if turn % 2 == 0 else (elastic, plain):
            costs[each].append(_drive(each))
    usual = statistics.median(costs[plain])
    pairs = zip(costs[plain], costs[elastic], strict=True)
    return {"plain_ms": usual, "more": statistics.median(b - a for a, b in pairs) / usual}


def _drive(iterator: Any) -> float:
    """Take some batches; CPU milliseconds for each of them."""
    pids = [worker.pid for worker in iterator._workers]
    workers_s, own_s = _used_s(pids), time.process_time()
    for _ in range(BATCHES):
        next(iterator)
        time.sleep(STEP_S)
    own_s = time.process_time() - own_s
    time.sleep(SETTLE_S)
    return 1e3 * (own_s + _used_s(pids) - workers_s) / BATCHES


def _used_s(pids: list[int]) -> float:
    """`12345678 2345 99` (schedstat of a thread: ns running, ns waiting, slices)."""
    threads = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in threads) / 1e9


def _section(told: dict[str, float]) -> str:
    more, lowest, highest = (f"{100 * told[name]:+.1f}" for name in ("more", "lowest", "highest"))
    return f"""## Elastic loader without need

`python -m bench.elastic_cost`, {results.machine()}. A healthy job with {WORKERS} workers,
{PROCESSES} jobs, in each {TURNS} turns of {BATCHES} batches; CPU of all of a job's processes.

| figure | measured | bar |
| --- | --- | --- |
| plain loader, CPU a batch | {told["plain_ms"]:.2f} ms | |
| more with the elastic loader | {more} % (jobs: {lowest} to {highest}) | +{100 * BAR:.0f} % |"""


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        print(json.dumps(run_turns()))
    else:
        print(main())
