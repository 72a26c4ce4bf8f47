"""Ranks on one host with uneven input, under one budget: `python -m bench host_budget`, 20 minutes.

The host is emulated (bench.host_job): work sleeps while it holds one of so many cores. A grid of
static numbers of workers, plain torch loaders, finds the best two splits of each situation; these
run again in turns with --fix as it is, under the host's budget, and with governors that see only
themselves. What counts is the rate of the last seconds of each part of a run, as a share of the
best static split's.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
from typing import Any, NamedTuple

from bench import results
from bench.host_job import Mode, Situation

STATIC_S, FIX_S, LAST_S = 10.0, 30.0, 5
ROUNDS = 3
BAR = 0.95
LIGHT_BAR = 0.90


class Host(NamedTuple):
    """A situation and the static splits to try."""

    name: str
    situation: Situation
    grid: list[tuple[int, ...]]


def _heavy_and_light(ranks: int, heavy: tuple[int, ...], light: tuple[int, ...]) -> Any:
    return [(each, *[few] * (ranks - 1)) for each, few in itertools.product(heavy, light)]


HOSTS = (
    Host(
        "four ranks, one with 8 times the work; 8 cores",
        Situation(8, ((0.08,), (0.01,), (0.01,), (0.01,)), 0.01),
        _heavy_and_light(4, (2, 4, 5, 6, 8), (1, 2)),
    ),
    Host(
        "two ranks, one with 4 times the work; 4 cores",
        Situation(4, ((0.06,), (0.015,)), 0.01),
        _heavy_and_light(2, (2, 3, 4, 6), (1, 2)),
    ),
    Host(
        "two ranks, first the one has 6 times the work, then the other; 6 cores",
        Situation(6, ((0.06, 0.01), (0.01, 0.06)), 0.01),
        [(3, 3), (4, 4), (5, 2), (5, 5), (6, 6)],
    ),
)
JOBS = Situation(4, ((0.1,), (0.01,)), 0.02, is_joint=False)
"""Two jobs: one wants more cores than there are, the other one half of a core."""


def _run(situation: Situation, modes: list[Mode], seconds: float) -> list[list[list[float]]]:
    given = json.dumps({"situation": situation, "modes": modes, "seconds": seconds})
    command = [sys.executable, "-W", "ignore", "-m", "bench.host_job", given]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    found: list[list[list[float]]] = json.loads(out)
    return found


def _settle(situation: Situation, rates: list[list[float]], rank: int = 0) -> float:
    """Rate at the end of each part of a run: as many steps of each."""
    parts = max(map(len, situation.work_s))
    length = len(rates) // parts
    ends = [rates[length * (part + 1) - LAST_S : length * (part + 1)] for part in range(parts)]
    return statistics.harmonic_mean(
        [max(1e-9, statistics.median(each[rank] for each in end)) for end in ends]
    )


def measure_host(host: Host) -> dict[str, Any]:
    """The best static split, and what --fix comes to beside it."""
    situation = host.situation
    parts = max(map(len, situation.work_s))
    plain = [Mode("", each) for each in host.grid]
    once = _run(situation, plain, STATIC_S * parts)
    ranked = sorted(zip(plain, once, strict=True), key=lambda pair: -_settle(situation, pair[1]))
    best = [mode for mode, _ in ranked[:2]]
    ones = (1,) * len(situation.work_s)
    fixed = [Mode("shared", ones), Mode("separate", ones)]
    found: dict[Mode, list[float]] = {}
    for _ in range(ROUNDS):
        for modes, seconds in ((best, STATIC_S), (fixed, FIX_S)):
            turns = zip(modes, _run(situation, modes, seconds * parts), strict=True)
            for mode, rates in turns:
                found.setdefault(mode, []).append(_settle(situation, rates))
    static = {mode: statistics.median(found[mode]) for mode in best}
    bar_mode = max(static, key=static.__getitem__)
    shared, separate = (statistics.median(found[mode]) for mode in fixed)
    return {
        "name": host.name,
        "best": static[bar_mode],
        "best_split": bar_mode.workers,
        "shared": shared,
        "separate": separate,
        "share": shared / static[bar_mode],
        "separate_share": separate / static[bar_mode],
    }


def measure_jobs() -> dict[str, float]:
    """What the light one of two jobs keeps of its rate beside the heavy one."""
    alone = JOBS._replace(work_s=JOBS.work_s[1:])
    kept: list[float] = []
    for _ in range(ROUNDS):
        by_itself = _settle(alone, _run(alone, [Mode("shared", (1,))], FIX_S)[0])
        beside = _run(JOBS, [Mode("shared", (8, 1))], FIX_S)[0]
        kept.append(_settle(JOBS, beside, rank=1) / by_itself)
    return {"kept": statistics.median(kept)}


def main() -> dict[str, Any]:
    """Measure, write the section."""
    hosts, jobs = [measure_host(each) for each in HOSTS], measure_jobs()
    results.write_section("host_budget", _section(hosts, jobs))
    passed = all(each["share"] >= BAR for each in hosts) and jobs["kept"] >= LIGHT_BAR
    return {"hosts": hosts, "jobs": jobs, "passed": passed}


def _section(hosts: list[dict[str, Any]], jobs: dict[str, float]) -> str:
    rows = "\n".join(
        f"| {each['name']} | {1e3 / each['best']:.1f} ({':'.join(map(str, each['best_split']))}) | "
        f"{1e3 / each['shared']:.1f} | {1e3 / each['separate']:.1f} | "
        f"{100 * each['share']:.0f} % | {100 * each['separate_share']:.0f} % |"
        for each in hosts
    )
    return f"""## One budget for the ranks of a host

`python -m bench host_budget`, {results.machine()}. An emulated host: work sleeps while it holds one
of its cores, and the loader's clocks are those of these cores. Milliseconds a step, ranks wait for
each other after each; settled, medians of {ROUNDS} runs in turns. Under --fix every rank starts
with one worker. Best static: the best split of workers of a grid. Bar: {100 * BAR:.0f} % of that.

| ranks | best static | shared budget | each by itself | shared | by itself |
| --- | --- | --- | --- | --- | --- |
{rows}

Two jobs that do not wait for each other on 4 such cores, one with 8 workers of its own that never
have enough: the other, which needs half a core, keeps {100 * jobs["kept"]:.0f} % of its rate (bar:
{100 * LIGHT_BAR:.0f} %)."""


if __name__ == "__main__":
    print(main())
