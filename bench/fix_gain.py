"""How near does `run --fix` come to the best settings? `python -m bench.fix_gain`, 25 minutes.

bench.loader_grid finds the best settings of each pipeline. The job with one worker then runs under
--fix for 60 s, twice, in turns with the best; its rate over the last 15 s counts. And a healthy
job runs plainly and under the elastic loader in turns: CPU seconds per batch from the difference of
a long and a short run, so that what is spent once does not count, and is told beside it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from functools import partial
from typing import Any

from bench import loader_grid, results
from bench.loader_grid import LONG_S, Loading
from fuelline.fix.adapters import put_on_path
from fuelline.schema.fixes import FIX_VARIABLE
from fuelline.schema.wire import RUN_DIR_VARIABLE

FIX_S = 60.0
LAST_S = 15
ROUNDS = 2
BAR = 0.95
SHORT, LONG = 300, 1500
CPU_BAR = 0.01
CPU_ROUNDS = 5


def run_fixed(kind: str) -> list[float]:
    """Rates under `fuelline run --fix` in its last seconds, from one worker on."""
    with tempfile.TemporaryDirectory() as folder:
        ours = [sys.executable, "-m", "fuelline", "run", "--fix", "--quiet", "--run-dir"]
        job = loader_grid.command(kind, *Loading().words(), "--seconds", str(FIX_S))
        told = loader_grid.read_account([*ours, f"{folder}/run", *job])
    rates: list[float] = told["rates"][-LAST_S:]
    return rates


def measure_kind(kind: str) -> dict[str, Any]:
    best = loader_grid.find_best(kind)
    plain = [partial(loader_grid.measure_rates, kind, each, LONG_S) for each in (Loading(), *best)]
    start, *bars, reached = loader_grid.in_turns(ROUNDS, [*plain, partial(run_fixed, kind)])
    return {
        "start": start,
        "best": max(bars),
        "best_setting": loader_grid.rank(best, bars)[0].text(),
        "fixed": reached,
        "share": reached / max(bars),
    }


def measure_cost() -> dict[str, float]:
    """CPU seconds per batch of a healthy job, and what the elastic loader spends once."""
    slopes: dict[bool, list[float]] = {False: [], True: []}
    once: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        elastic = {**put_on_path(), FIX_VARIABLE: "safe", RUN_DIR_VARIABLE: folder}
        for number in range(CPU_ROUNDS):
            for fixed in (False, True) if number % 2 == 0 else (True, False):
                more = elastic if fixed else None
                words = [*Loading(workers=2).words(), "--batches"]
                used = [
                    loader_grid.run_job("healthy", *words, str(count), more=more)["cpu_s"]
                    for count in (SHORT, LONG)
                ]
                slope = (used[1] - used[0]) / (LONG - SHORT)
                slopes[fixed].append(slope)
                once[fixed].append(used[0] - SHORT * slope)
    plain_s, elastic_s = (statistics.median(slopes[fixed]) for fixed in (False, True))
    return {
        "plain_ms": 1e3 * plain_s,
        "elastic_ms": 1e3 * elastic_s,
        "more": elastic_s / plain_s - 1,
        "once_s": statistics.median(once[True]) - statistics.median(once[False]),
    }


def main() -> dict[str, Any]:
    """Measure, write the section."""
    kinds = {kind: measure_kind(kind) for kind in loader_grid.KINDS}
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

`python -m bench.fix_gain`, {results.machine()}. Batches a second; the job starts with one worker.
The grid is workers 0 to 8 times prefetch 2 and 4; its best ran again in turns with --fix, of which
the last {LAST_S} s of {FIX_S:.0f} s count. Bar: {100 * BAR:.0f} % of the best.

| pipeline | as it is | best of the grid | under --fix | share of the best |
| --- | --- | --- | --- | --- |
{rows}

A healthy job with two workers: {cost["plain_ms"]:.3f} ms of CPU a batch plainly,
{cost["elastic_ms"]:.3f} ms with the elastic loader: {100 * cost["more"]:+.1f} % (bar +1 %), and
{cost["once_s"]:.2f} s once for the spare workers."""


if __name__ == "__main__":
    print(main())
