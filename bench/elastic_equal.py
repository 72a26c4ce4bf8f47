"""Are the elastic loader's batches those of the plain one? `python -m bench.elastic_equal [N]`.

N randomised loaders (1,000), drawn by hypothesis: samplers, batch samplers, datasets that draw,
fail, or ask who they are, early breaks, persistent workers, no order; workers and prefetch changed
in mid-epoch, workers killed by SIGKILL; batches from nothing to 1.6 MB, arrays, sparse and strided
tensors, classes, batches that the loop keeps, workers without shared memory. Everything a loop can
see must be the same, and so must the random streams of the main process. A loader forks 13
processes and mostly waits for them, so four shares run side by side, each with a seed of its own.
Six minutes on two quiet cores, longer on busy ones. Exit 1 if any differs.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import hypothesis
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import results
from bench.elastic_case import Case, differs, draw_case

COUNT = 1000
SHARES = 4
NAMES = (
    *("configurations", "with workers changed in mid-epoch", "with workers killed"),
    *("with batches kept", "without shared memory now and then", "different"),
)


def measure(count: int = COUNT) -> dict[str, int]:
    """How many configurations were run, and how many differed."""
    context = multiprocessing.get_context("fork")  # torch is loaded once
    counts = [(count + number) // SHARES for number in range(SHARES)]
    with ProcessPoolExecutor(SHARES, mp_context=context) as pool:
        shares = list(pool.map(measure_share, range(SHARES), counts))
    together: Counter[str] = Counter()
    for share in shares:
        together.update(share)
    return {name: together[name] for name in NAMES}


def measure_share(seed: int, count: int) -> Counter[str]:
    """A part of them, drawn from this seed; what differs is told at once."""
    seen: Counter[str] = Counter()
    torch.set_num_threads(1)  # threads that wait for each other beside busy workers take seconds

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def check(draw: object) -> None:
        case = draw_case(draw)  # type: ignore[arg-type]
        problem = differs(case)
        seen.update(_count(case, problem))
        if problem:
            print(f"differs in {problem}: {case}", flush=True)

    with contextlib.redirect_stderr(io.StringIO()):  # each killed worker is told there
        check()
    return seen


def _count(case: Case, problem: str) -> dict[str, int]:
    told = (
        *(True, bool(case.resizes), bool(case.kills)),
        *(bool(case.kept), bool(case.refusals), bool(problem)),
    )
    return dict(zip(NAMES, map(int, told), strict=True))


def main(count: int = COUNT) -> dict[str, Any]:
    """Measure, write the section."""
    found = measure(count)
    results.write_section("elastic_equal", _section(found))
    return {**found, "passed": not found["different"] and found["configurations"] >= count}


def _section(found: dict[str, int]) -> str:
    rows = "\n".join(f"| {name} | {value:,} |" for name, value in found.items())
    return f"""## The elastic loader's batches against the plain one's

`python -m bench.elastic_equal`, {results.machine()}. Batches, order, errors, batches that the loop
keeps and the main process's random streams are compared. Bar: none of 1,000 differs.

| | count |
| --- | --- |
{rows}"""


if __name__ == "__main__":
    figures = main(int(sys.argv[1]) if sys.argv[1:] else COUNT)
    print(figures)
    sys.exit(0 if figures["passed"] else 1)
