"""How near does `fuelline tune` come to the best settings? `python -m bench.tune_gain`, 17 minutes.

bench.loader_grid finds the best settings of each pipeline. `tune` gets the job with one worker; the
settings that it prints then run in turns with the best. The bar: 95 % of the best throughput, no
more than 60 s of trials.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any

from bench import loader_grid, results
from bench.loader_grid import LONG_S, Loading

ROUNDS = 3
BAR = 0.95
MOST_TRIAL_S = 60.0
ENDLESS_S = "3600"


def tune(kind: str) -> tuple[Loading, float]:
    """What it chooses, and how many seconds of trials that took."""
    job = loader_grid.command(kind, *Loading().words(), "--seconds", ENDLESS_S)
    ours = [sys.executable, "-m", "fuelline", "tune", "--json"]
    done = subprocess.run([*ours, *job], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    chosen = {each["knob"]: each["value"] for each in [*told["now"], *told["chosen"]]}
    loading = Loading(
        chosen["num_workers"], chosen.get("prefetch_factor") or 2, chosen["pin_memory"]
    )
    return loading, told["trial_seconds"]


def measure_kind(kind: str) -> dict[str, Any]:
    best = loader_grid.find_best(kind)
    chosen, trial_s = tune(kind)
    all_of_them = (Loading(), chosen, *best)
    runs = [partial(loader_grid.measure_rates, kind, each, LONG_S) for each in all_of_them]
    start, reached, *bars = loader_grid.in_turns(ROUNDS, runs)
    return {
        "start": start,
        "best": max(bars),
        "best_setting": loader_grid.rank(best, bars)[0].text(),
        "tuned": reached,
        "tuned_setting": chosen.text(),
        "share": reached / max(bars),
        "trial_s": trial_s,
    }


def main() -> dict[str, Any]:
    """Measure, write the section."""
    kinds = {kind: measure_kind(kind) for kind in loader_grid.KINDS}
    results.write_section("tune_gain", _section(kinds))
    passed = [each["share"] >= BAR and each["trial_s"] <= MOST_TRIAL_S for each in kinds.values()]
    return {**kinds, "passed": all(passed)}


def _section(kinds: dict[str, dict[str, Any]]) -> str:
    rows = "\n".join(
        f"| {kind} | {each['start']:.1f} | {each['best']:.1f} ({each['best_setting']}) | "
        f"{each['tuned']:.1f} ({each['tuned_setting']}) | {100 * each['share']:.0f} % | "
        f"{each['trial_s']:.0f} s |"
        for kind, each in kinds.items()
    )
    return f"""## tune against a full grid

`python -m bench.tune_gain`, {results.machine()}. Batches per second; the job has one worker.
The grid is workers 0 to 8 times prefetch 2 and 4; its best ran again in turns with what
`tune` chose. Bars: {100 * BAR:.0f} % of the best, {MOST_TRIAL_S:.0f} s of trials.

| pipeline | as it is | best of the grid | tuned | share of the best | trials |
| --- | --- | --- | --- | --- | --- |
{rows}"""


if __name__ == "__main__":
    print(main())
