"""How near does `run --fix` come to the best settings? `python -m bench.fix_gain`, 25 minutes.

bench.loader_grid finds the best settings of each pipeline. The job with one worker then runs under
--fix for 60 s, twice, in turns with the best; its rate over the last 15 s counts. What the elastic
loader costs a job that does not need it is told by bench.elastic_cost.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from typing import Any

from bench import loader_grid, results
from bench.loader_grid import LONG_S, Loading

FIX_S = 60.0
LAST_S = 15
ROUNDS = 3
BAR = 0.95


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


def main() -> dict[str, Any]:
    """Measure, write the section."""
    kinds = {kind: measure_kind(kind) for kind in loader_grid.KINDS}
    results.write_section("fix_gain", _section(kinds))
    least = min(each["share"] for each in kinds.values())
    return {**kinds, "passed": least >= BAR}


def _section(kinds: dict[str, dict[str, Any]]) -> str:
    rows = "\n".join(
        f"| {kind} | {each['start']:.1f} | {each['best']:.1f} ({each['best_setting']}) | "
        f"{each['fixed']:.1f} | {100 * each['share']:.0f} % |"
        for kind, each in kinds.items()
    )
    return f"""## run --fix against a full grid

`python -m bench.fix_gain`, {results.machine()}. Batches per second; the job starts with
one worker. The grid is workers 0 to 8 times prefetch 2 and 4; its best ran again in turns with
--fix, of which the last {LAST_S} s of {FIX_S:.0f} s count. Bar: {100 * BAR:.0f} % of the best.

| pipeline | as it is | best of the grid | under --fix | share of the best |
| --- | --- | --- | --- | --- |
{rows}"""


if __name__ == "__main__":
    print(main())
