"""How near does `run --fix` come to the best settings? `python -m bench fix_gain`, 15 minutes.

Each pipeline of bench.fix_job is run with every combination of workers and prefetch (pinning has no
meaning without an accelerator), twice, in turns; the best median is the bar. Then the job with one
worker runs under --fix for 60 s, twice; its rate over the last 15 s counts. And a healthy job runs
plainly and under the elastic loader in turns: CPU seconds per batch from the difference of a long
and a short run, so that what is spent once does not count, and is told beside it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import results
from fuelline.fix.adapters import SITE_DIR
from fuelline.schema.fixes import FIX_VARIABLE
from fuelline.schema.wire import RUN_DIR_VARIABLE

KINDS = ("blocked", "computing", "uneven")
GRID = [(workers, prefetch) for workers in (0, 1, 2, 3, 4, 6, 8) for prefetch in (2, 4)]
GRID_S = 6.0
FIX_S = 60.0
LAST_S = 15
ROUNDS = 2
BAR = 0.95
SHORT, LONG = 300, 1500
CPU_BAR = 0.01
CPU_ROUNDS = 5


def run_job(kind: str, *words: str, fix_dir: Path | None = None) -> dict[str, Any]:
    """One job, plain or with the elastic loader and no recorder."""
    environment = dict(os.environ)
    if fix_dir is not None:
        path = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = f"{SITE_DIR}{os.pathsep}{path}" if path else str(SITE_DIR)
        environment[FIX_VARIABLE] = "safe"
        environment[RUN_DIR_VARIABLE] = str(fix_dir)
    command = [sys.executable, "-W", "ignore", "-m", "bench.fix_job", kind, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def run_fixed(kind: str) -> list[float]:
    """Rates under `fuelline run --fix`, from one worker on."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fuelline", "run", "--fix", "--quiet", "--run-dir"]
        command += [f"{folder}/run", sys.executable, "-W", "ignore", "-m", "bench.fix_job", kind]
        command += ["--workers", "1", "--seconds", str(FIX_S)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    rates: list[float] = json.loads(done.stdout.splitlines()[-1])["rates"]
    return rates


def measure_grid(kind: str) -> dict[tuple[int, int], float]:
    """Median rate of every combination; the first second of a run does not count."""
    rates: dict[tuple[int, int], list[float]] = {each: [] for each in GRID}
    for number in range(ROUNDS):
        for workers, prefetch in GRID if number % 2 == 0 else reversed(GRID):
            words = ["--workers", str(workers), "--prefetch", str(prefetch)]
            told = run_job(kind, *words, "--seconds", str(GRID_S))
            rates[workers, prefetch] += told["rates"][1:]
    return {each: statistics.median(found) for each, found in rates.items()}


def measure_kind(kind: str) -> dict[str, Any]:
    grid = measure_grid(kind)
    best = max(grid, key=grid.__getitem__)
    runs = [run_fixed(kind) for _ in range(ROUNDS)]
    reached = statistics.median(rate for rates in runs for rate in rates[-LAST_S:])
    return {
        "start": grid[1, 2],
        "best": grid[best],
        "best_setting": f"{best[0]} workers, prefetch {best[1]}",
        "fixed": reached,
        "share": reached / grid[best],
    }


def measure_cost() -> dict[str, float]:
    """CPU seconds per batch of a healthy job, and what the elastic loader spends once."""
    slopes: dict[bool, list[float]] = {False: [], True: []}
    once: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(CPU_ROUNDS):
            for fixed in (False, True) if number % 2 == 0 else (True, False):
                place = Path(folder) if fixed else None
                used = [
                    run_job("healthy", "--workers", "2", "--batches", str(count), fix_dir=place)
                    for count in (SHORT, LONG)
                ]
                slope = (used[1]["cpu_s"] - used[0]["cpu_s"]) / (LONG - SHORT)
                slopes[fixed].append(slope)
                once[fixed].append(used[0]["cpu_s"] - SHORT * slope)
    plain, elastic = (statistics.median(slopes[fixed]) for fixed in (False, True))
    return {
        "plain_ms": 1e3 * plain,
        "elastic_ms": 1e3 * elastic,
        "more": elastic / plain - 1,
        "once_s": statistics.median(once[True]) - statistics.median(once[False]),
    }


def main() -> dict[str, Any]:
    """Measure, write the section."""
    kinds = {kind: measure_kind(kind) for kind in KINDS}
    cost = measure_cost()
    results.write_section("fix_gain", _section(kinds, cost))
    least = min(each["share"] for each in kinds.values())
    return {**kinds, "cost": cost, "passed": least >= BAR and cost["more"] <= CPU_BAR}


def _section(kinds: dict[str, dict[str, Any]], cost: dict[str, float]) -> str:
    rows = "\n".join(
        f"| {kind} | {each['start']:.1f} | {each['best']:.1f} ({each['best_setting']}) | "
        f"{each['fixed']:.1f} | {100 * each['share']:.0f} % |"
        for kind, each in kinds.items()
    )
    return f"""## run --fix against a full grid

`python -m bench fix_gain`, {results.machine()}. Batches a second; the job starts with one worker,
the grid is workers 0 to 8 times prefetch 2 and 4, the last {LAST_S} s of {FIX_S:.0f} s count. Bar:
{100 * BAR:.0f} % of the best.

| pipeline | as it is | best of the grid | under --fix | share of the best |
| --- | --- | --- | --- | --- |
{rows}

A healthy job with two workers: {cost["plain_ms"]:.3f} ms of CPU a batch plainly,
{cost["elastic_ms"]:.3f} ms with the elastic loader: {100 * cost["more"]:+.1f} % (bar +1 %), and
{cost["once_s"]:.2f} s once for the spare workers."""


if __name__ == "__main__":
    print(main())
