"""Are the elastic loader's batches those of the plain one? `python -m bench.elastic_equal [N]`.

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

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def main(words: list[str]) -> int:
    found = measure(int(words[0]) if words else COUNT)
    for name, value in found.items():
        print(f"{name:<36} {value:>6,.0f}")
    return 1 if found["different"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
