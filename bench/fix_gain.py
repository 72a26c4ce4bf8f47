"""How near does `run --fix` come to the best settings? `python -m bench.fix_gain`, 20 minutes.

Four pipelines of bench.fix_job: samples that wait, JPEGs through Pillow, reads from the disk, and
all of these. A small grid of workers finds the best two static settings of each. The job with one
worker then runs under --fix, in turns with these two and as it is. Two figures count, each as a
share of the better of the two: the rate after settling, and the rate of seconds 9 to 12. All that
was done in the first 12 s, worker start included on both sides, is shown beside them. What the
elastic loader costs a job that does not need it is measured by bench.elastic_cost.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from functools import partial
from typing import Any, NamedTuple

from bench import loader_grid, results
from bench.loader_grid import Loading

KINDS = ("distant", "decoding", "reading", "mixed")
WORKERS = (1, 2, 3, 4, 8, 16)
QUICK_S, STATIC_S, FIX_S = 4.0, 14.0, 40.0
EARLY_S = 12
NEAR_S = 3
"""The last of the first 12 s, in which it must be near."""
LAST_S = 15
ROUNDS = 3
SETTLED_BAR, EARLY_BAR = 0.98, 0.90


class Pace(NamedTuple):
    """Of one run, in batches a second."""

    settled: float
    near: float
    early: float


def run_static(kind: str, loading: Loading, seconds: float = STATIC_S) -> Pace:
    """Plainly."""
    job = loader_grid.command(kind, *loading.words(), "--seconds", str(seconds))
    return _pace(loader_grid.read_account(job), skip=1)


def run_fixed(kind: str) -> Pace:
    """Under `fuelline run --fix`, from one worker on."""
    with tempfile.TemporaryDirectory() as folder:
        ours = [sys.executable, "-m", "fuelline", "run", "--fix", "--quiet", "--run-dir"]
        job = loader_grid.command(kind, *Loading().words(), "--seconds", str(FIX_S))
        return _pace(loader_grid.read_account([*ours, f"{folder}/run", *job]), skip=-LAST_S)


def _pace(account: dict[str, Any], skip: int) -> Pace:
    rates = account["rates"]
    near = rates[EARLY_S - NEAR_S : EARLY_S] or rates
    settled = statistics.median(rates[skip:] or rates)
    return Pace(settled, statistics.median(near), account["early"] / EARLY_S)


def measure_kind(kind: str) -> dict[str, Any]:
    """Its best settings, and what --fix reaches of them."""
    grid = [Loading(workers) for workers in WORKERS]
    once = [run_static(kind, each, QUICK_S).settled for each in grid]
    best = loader_grid.rank(grid, once)[:2]
    actions = [partial(run_static, kind, each) for each in (Loading(), *best)]
    start, *bars, fixed = _in_turns([*actions, partial(run_fixed, kind)])
    bar = max(bars, key=lambda each: each.settled)
    return {
        "start": start.settled,
        "best": bar.settled,
        "best_setting": best[bars.index(bar)].text(),
        "fixed": fixed.settled,
        "settled_share": fixed.settled / bar.settled,
        "near_share": fixed.near / bar.settled,
        "early_share": fixed.early / bar.early,
    }


def _in_turns(actions: list[partial[Pace]]) -> list[Pace]:
    """Each some times, forwards and backwards in turn: its median figures."""
    paces: list[list[Pace]] = [[] for _ in actions]
    for number in range(ROUNDS):
        pairs = list(zip(actions, paces, strict=True))
        for action, found in pairs if number % 2 == 0 else reversed(pairs):
            found.append(action())
    return [Pace(*map(statistics.median, zip(*found, strict=True))) for found in paces]


def main() -> dict[str, Any]:
    """Measure, write the section."""
    kinds = {kind: measure_kind(kind) for kind in KINDS}
    results.write_section("fix_gain", _section(kinds))
    settled = min(each["settled_share"] for each in kinds.values())
    near = min(each["near_share"] for each in kinds.values())
    return {**kinds, "passed": settled >= SETTLED_BAR and near >= EARLY_BAR}


def _section(kinds: dict[str, dict[str, Any]]) -> str:
    rows = "\n".join(
        f"| {kind} | {each['start']:.1f} | {each['best']:.1f} ({each['best_setting']}) | "
        f"{each['fixed']:.1f} | {100 * each['settled_share']:.0f} % | "
        f"{100 * each['near_share']:.0f} % | {100 * each['early_share']:.0f} % |"
        for kind, each in kinds.items()
    )
    return f"""## run --fix against static settings

`python -m bench.fix_gain`, {results.machine()}. Batches per second; the job starts with one worker.
Medians of {ROUNDS} runs in turns. The grid is {", ".join(map(str, WORKERS))} workers; its best two
ran again in turns with --fix. Settled: the last {LAST_S} s of {FIX_S:.0f} s, bar
{100 * SETTLED_BAR:.0f} % of the best. Early: seconds {EARLY_S - NEAR_S} to {EARLY_S}, bar
{100 * EARLY_BAR:.0f} %. The last column is all that was done in the first {EARLY_S} s, the start of
workers included, against the best one's first {EARLY_S} s.

| pipeline | as it is | best static | under --fix | settled | early | whole first {EARLY_S} s |
| --- | --- | --- | --- | --- | --- | --- |
{rows}"""


if __name__ == "__main__":
    print(main())
