"""Is the device's time found from the host alone? Recordings of the zoo against what was emulated.

Reads the recordings that `python -m bench.zoo` has left in bench/out/runs: jobs with an emulated
device, whose time per step is in their options. Also how far the pipeline model's own time of a
batch is from the recorded one before anything is solved for. Half a minute; starts no job.

    python -m bench.device_time [FOLDER]
"""

from __future__ import annotations

import itertools
import statistics
import sys
from pathlib import Path
from typing import Any

from bench import results
from bench.zoo.cases import CASES
from bench.zoo.record import RUNS
from fuelline.pipeline import measure_run
from fuelline.schema.readings import Missing, Reading
from fuelline.whatif import Fit, fit

EMULATED = {"arrays", "audio", "files", "images", "objects", "pauses"} | {
    "tars",
    "text",
    "tokens",
    "warmup",
}
DEFAULTS = {"--fixed-ms": 2.0, "--sample-ms": 1.0, "--batch": 16.0}
"""Of the jobs' options (bench/zoo/jobs/trainer.py)."""
MEDIAN_BAR = 0.05
"""Our own: a prediction that is to be right by a tenth needs its main number twice as right."""


def main(folder: Path = RUNS) -> dict[str, Any]:
    """Compare all recordings there are, write the section, give the figures."""
    rows = [row for case in CASES for row in measure(case, folder)]
    figures = summary(rows)
    results.write_section("device_time", section(rows, figures))
    print(figures)
    return figures


def measure(case: Any, folder: Path) -> list[dict[str, Any]]:
    """One row a recording of a case, whatever load it was made under."""
    if case.job not in EMULATED or case.ranks:
        return []
    return [_row(case, path) for path in sorted(folder.glob(f"{case.name}.*"))]


def _row(case: Any, path: Path) -> dict[str, Any]:
    facts = measure_run(path)
    row: dict[str, Any] = {"run": path.name, "true_s": device_ms(case.args) / 1e3}
    if isinstance(facts, Missing):
        return row
    told = facts.demands.device_seconds
    fitted = fit(facts)
    return {
        **row,
        "found_s": told.value if isinstance(told, Reading) else None,
        "misfit": fitted.misfit if isinstance(fitted, Fit) else None,
    }


def device_ms(args: str) -> float:
    """Device time of one step, as the job's options set it."""
    words = args.split()
    told: dict[str, Any] = {**DEFAULTS, **dict(itertools.pairwise(words))}
    fixed, sample, batch = (float(told[name]) for name in DEFAULTS)
    return fixed + sample * batch


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors of what was found; what was refused is counted apart."""
    errors = sorted(
        abs(row["found_s"] / row["true_s"] - 1) for row in rows if row.get("found_s") is not None
    )
    misfits = sorted(abs(row["misfit"]) for row in rows if row.get("misfit") is not None)
    median = statistics.median(errors) if errors else None
    return {
        "recordings": len(rows),
        "found": len(errors),
        "median_error": median,
        "p90_error": errors[int(0.9 * (len(errors) - 1))] if errors else None,
        "fitted": len(misfits),
        "median_misfit": statistics.median(misfits) if misfits else None,
        "p90_misfit": misfits[int(0.9 * (len(misfits) - 1))] if misfits else None,
        "passed": median is not None and median <= MEDIAN_BAR,
    }


def section(rows: list[dict[str, Any]], figures: dict[str, Any]) -> str:
    """The part of the results page."""
    worst = sorted(
        (row for row in rows if row.get("found_s") is not None),
        key=lambda row: -abs(row["found_s"] / row["true_s"] - 1),
    )[:5]
    lines = [
        "## The device's time, found from the host",
        "",
        (
            f"`python -m bench.device_time`, {results.machine()}: recordings that the zoo left, "
            "under whatever load they were made."
        ),
        "",
        "| figure | measured | bar |",
        "| --- | --- | --- |",
        f"| device time found | {figures['found']} of {figures['recordings']} recordings | |",
        f"| error, median | {_frac(figures['median_error'])} | {MEDIAN_BAR:.0%} |",
        f"| error, 90th percentile | {_frac(figures['p90_error'])} | |",
        (
            f"| model's time of a batch against the recorded one, median | "
            f"{_frac(figures['median_misfit'])} | |"
        ),
        f"| the same, 90th percentile | {_frac(figures['p90_misfit'])} | |",
        "",
        "Worst: "
        + "; ".join(
            f"{row['run']} {row['found_s'] * 1e3:.1f} of {row['true_s'] * 1e3:.1f} ms"
            for row in worst
        )
        + ".",
    ]
    return "\n".join(lines)


def _frac(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


if __name__ == "__main__":
    told = main(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
    sys.exit(0 if told["passed"] else 1)
