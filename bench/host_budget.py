"""Ranks on one host with uneven input, under one budget: `python -m bench host_budget`, 20 minutes.

The host is emulated (bench.host_job): work sleeps while it holds one of so many cores. A grid of
static numbers of workers, plain torch loaders, finds the best two splits of each situation; these
run again, at the same time as --fix under the host's budget and as governors that see only
themselves, each on an emulated host of its own. What counts is the rate of the last seconds of each
part of a run, as a share of the better static split's.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import results
from bench.host_job import Mode, Situation

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK_S, WHOLE_S, LAST_S = 10.0, 40.0, 10
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
    """One after the other."""
    return _start(situation, modes, seconds)()


def _run_together(asked: list[tuple[Situation, Mode]], seconds: float) -> list[list[list[float]]]:
    """At the same time, each on a host of its own: what else this machine does befalls all."""
    endings = [_start(situation, [mode], seconds) for situation, mode in asked]
    return [found for ending in endings for found in ending()]


def _start(
    situation: Situation, modes: list[Mode], seconds: float
) -> Callable[[], list[list[list[float]]]]:
    given = json.dumps({"situation": situation, "modes": modes, "seconds": seconds})
    command = [sys.executable, "-W", "ignore", "-m", "bench.host_job", given]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)

    def end() -> list[list[list[float]]]:
        out, _ = child.communicate()
        found: list[list[list[float]]] = json.loads(out)
        return found

    return end


def _settle(
    situation: Situation, rates: list[list[float]], rank: int = 0, last: int = LAST_S
) -> float:
    """Rate at the end of each part of a run: as many steps of each."""
    parts = max(map(len, situation.work_s))
    length = len(rates) // parts
    ends = [rates[length * (part + 1) - last : length * (part + 1)] for part in range(parts)]
    return statistics.harmonic_mean(
        [max(1e-9, statistics.median(each[rank] for each in end)) for end in ends]
    )


def measure_host(host: Host) -> dict[str, Any]:
    """The best static split, and what --fix comes to beside it."""
    situation = host.situation
    parts = max(map(len, situation.work_s))
    plain = [Mode("", each) for each in host.grid]
    once = _run(situation, plain, QUICK_S * parts)
    rated = [_settle(situation, rates, last=4) for rates in once]
    ranked = sorted(zip(rated, plain, strict=True), key=lambda pair: -pair[0])
    ones = (1,) * len(situation.work_s)
    modes = [ranked[0][1], ranked[1][1], Mode("shared", ones), Mode("separate", ones)]
    rounds = [
        _run_together([(situation, mode) for mode in modes], WHOLE_S * parts) for _ in range(ROUNDS)
    ]
    settled = [[_settle(situation, rates) for rates in found] for found in rounds]
    first, second, shared, separate = (
        statistics.median(column) for column in zip(*settled, strict=True)
    )
    best = max(first, second)
    return {
        "name": host.name,
        "best": best,
        "best_split": modes[0 if first >= second else 1].workers,
        "shared": shared,
        "separate": separate,
        "share": statistics.median(each[2] / max(each[:2]) for each in settled),
        "separate_share": statistics.median(each[3] / max(each[:2]) for each in settled),
        "shares": [each[2] / max(each[:2]) for each in settled],
    }


def measure_jobs() -> dict[str, float]:
    """What the light one of two jobs keeps of its rate beside the heavy one."""
    alone = JOBS._replace(work_s=JOBS.work_s[1:])
    asked = [(alone, Mode("shared", (1,))), (JOBS, Mode("shared", (8, 1)))]
    kept = []
    for _ in range(ROUNDS):
        by_itself, beside = _run_together(asked, WHOLE_S)
        kept.append(_settle(JOBS, beside, rank=1) / _settle(alone, by_itself))
    return {"kept": statistics.median(kept)}


def main() -> dict[str, Any]:
    """Measure, write the section."""
    hosts, jobs = [measure_host(each) for each in HOSTS], measure_jobs()
    results.write_section("host_budget", _section(hosts, jobs))
    passed = all(each["share"] >= BAR for each in hosts) and jobs["kept"] >= LIGHT_BAR
    return {"hosts": hosts, "jobs": jobs, "passed": passed}


def _section(hosts: list[dict[str, Any]], jobs: dict[str, float]) -> str:
    rows = "\n".join(map(_row, hosts))
    return f"""## One budget for the ranks of a host

`python -m bench host_budget`, {results.machine()}. An emulated host: work sleeps while it holds one
of its cores, and the loader's clocks are those of these cores. Milliseconds a step, ranks wait for
each other after each. Settled: the last {LAST_S} s of {WHOLE_S:.0f} s of each part of a run, as
medians of {ROUNDS} runs, in which all columns run at the same time. Under --fix every rank starts
with one worker. Best static: the best split of workers of a grid. Bar: {100 * BAR:.0f} % of its
rate. Load {os.getloadavg()[0]:.0f} at the end; where single runs (in brackets) differ by more than
a tenth, the machine was too busy for a verdict.

| ranks | best static | shared budget | each by itself | shared | by itself |
| --- | --- | --- | --- | --- | --- |
{rows}

Two jobs that do not wait for each other on 4 such cores, one with 8 workers of its own that never
have enough: the other, which needs half a core, keeps {100 * jobs["kept"]:.0f} % of its rate (bar:
{100 * LIGHT_BAR:.0f} %)."""


def _row(host: dict[str, Any]) -> str:
    split = ":".join(map(str, host["best_split"]))
    shares = ", ".join(f"{100 * each:.0f}" for each in host["shares"])
    return (
        f"| {host['name']} | {1e3 / host['best']:.1f} ({split}) | {1e3 / host['shared']:.1f} | "
        f"{1e3 / host['separate']:.1f} | {100 * host['share']:.0f} % ({shares}) | "
        f"{100 * host['separate_share']:.0f} % |"
    )


if __name__ == "__main__":
    print(main())
