"""Are the elastic loader's batches those of the plain one? `python -m bench elastic_equal`.

N randomised loaders (1,000), drawn by hypothesis: samplers, batch samplers, datasets that draw,
fail, or ask who they are, early breaks, persistent workers, no order; workers and prefetch changed
in mid-epoch, workers killed by SIGKILL. Everything a loop can see must be the same, and so must the
random streams of the main process. 1,000 take 12 minutes on two cores. Exit 1 if any differs.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import results
from bench.elastic_case import Case, differs, draw_case

COUNT = 1000


def measure(count: int = COUNT) -> dict[str, float]:
    """How many configurations were run, and how many differed."""
    seen: Counter[str] = Counter()
    different: list[tuple[str, Case]] = []

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def check(draw: object) -> None:
        case = draw_case(draw)  # type: ignore[arg-type]
        seen["configurations"] += 1
        seen["with workers changed in mid-epoch"] += bool(case.resizes)
        seen["with workers killed"] += bool(case.kills)
        problem = differs(case)
        if problem:
            different.append((problem, case))

    with contextlib.redirect_stderr(io.StringIO()):  # each killed worker is told there
        check()
    for problem, case in different:
        print(f"differs in {problem}: {case}", flush=True)
    return {**seen, "different": float(len(different))}


def main(count: int = COUNT) -> dict[str, Any]:
    """Measure, write the section."""
    found = measure(count)
    results.write_section("elastic_equal", _section(found))
    return {**found, "passed": not found["different"]}


def _section(found: dict[str, float]) -> str:
    rows = "\n".join(f"| {name} | {value:,.0f} |" for name, value in found.items())
    return f"""## The elastic loader's batches against the plain one's

`python -m bench elastic_equal`, {results.machine()}. Batches, order, errors and the main process's
random streams are compared. Bar: none of 1,000 differs.

| | count |
| --- | --- |
{rows}"""


if __name__ == "__main__":
    figures = main(int(sys.argv[1]) if sys.argv[1:] else COUNT)
    print(figures)
    sys.exit(0 if figures["passed"] else 1)
