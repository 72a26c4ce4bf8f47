"""What recording adds to a short job: `fuelline run train.py` against `python train.py`, wall time.

Both are run in turn, so that a noisy machine disturbs both alike; medians are compared, and the
interval is a bootstrap over the pairs. The report at the end of `fuelline run` is included.

    python -m bench.fixed_cost
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import results
from bench.zoo.case import JOBS
from bench.zoo.faults.processes import REPOSITORY
from bench.zoo.job import my_turn
from bench.zoo.record import FUELLINE

PAIRS = 9
BAR_S = 1.0
TRAIN = (str(JOBS / "small_model.py"), "--workers", "2", "--count", "640", "--seconds", "2")


def main() -> dict[str, Any]:
    """The figures and whether they meet the bar."""
    pairs = []
    with my_turn(), tempfile.TemporaryDirectory() as folder:
        for number in range(PAIRS):
            plain_s = _wall_s([sys.executable, *TRAIN])
            run_dir = Path(folder) / str(number)
            pairs.append((plain_s, _wall_s([*FUELLINE, "run", "--run-dir", str(run_dir), *TRAIN])))
    low_s, high_s = _interval([with_us - plain for plain, with_us in pairs])
    figures = {
        "plain_s": round(statistics.median(plain for plain, _ in pairs), 2),
        "recorded_s": round(statistics.median(with_us for _, with_us in pairs), 2),
        "added_s": round(statistics.median(with_us - plain for plain, with_us in pairs), 2),
        "added_low_s": round(low_s, 2),
        "added_high_s": round(high_s, 2),
        "pairs": PAIRS,
    }
    figures["passed"] = figures["added_s"] <= BAR_S
    results.write_section("fixed_cost", markdown(figures))
    return figures


def markdown(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    interval = f"{figures['added_low_s']} to {figures['added_high_s']}"
    return f"""## Fixed cost

`python -m bench.fixed_cost`, {results.machine()}. Medians of {PAIRS} pairs, run in turn.

| figure | measured | bar |
| --- | --- | --- |
| `python train.py` | {figures["plain_s"]} s | |
| `fuelline run train.py`, report included | {figures["recorded_s"]} s | |
| added | {figures["added_s"]} s ({interval}) | {BAR_S} s |"""


def _wall_s(command: list[str]) -> float:
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    start_s = time.perf_counter()
    subprocess.run(command, env=env, check=True, capture_output=True)
    return time.perf_counter() - start_s


def _interval(values: list[float]) -> tuple[float, float]:
    """95 % of the medians of resampled pairs."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(1000))
    return medians[25], medians[975]


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
