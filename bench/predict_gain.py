"""Predicted against achieved gain: record a faulty job, predict, apply each remedy, measure.

Jobs of the zoo. A case is recorded once (12 s); then the job as it was and the job with each remedy
run in turn, unrecorded, `--runs` times, and medians are compared. The error is predicted over
achieved speedup, minus 1. The remedy ranked first is right if it does as well as the best, within
the 3 % that a job differs by from run to run. A prediction that the model refuses is counted apart,
and a case whose best remedy got none counts as ranked wrong. Bars: median error 10 %,
90th percentile 25 %, best remedy first in 90 %, and 85 to 95 % of what was achieved inside the
intervals of 90 %, on a quiet machine and beside a busy neighbour. Needs root, as the zoo does;
about 25 minutes for each load. Recordings are kept: `--again` asks the model of today about them.

    python -m bench.predict_gain [--only NAME ...] [--load none ...] [--runs 2] [--again]
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import results
from bench.predict_cases import Applied, find_case, plan
from bench.zoo.fault import NotPlanted
from bench.zoo.job import JobError, run_job
from bench.zoo.load import NEIGHBOUR, background
from bench.zoo.record import FUELLINE
from fuelline.pipeline import ask_run
from fuelline.schema.readings import Missing, Reading

if TYPE_CHECKING:
    from bench.zoo.case import Case

OUT = Path(__file__).parent / "out" / "predict"
ROWS = OUT / "gains.json"
RUN_TO_RUN = 0.03
MEDIAN_BAR, P90_BAR, RANK_BAR = 0.10, 0.25, 0.90
LOADS = ("none", NEIGHBOUR)
LEVEL, COVERED_BAR = 90, (0.85, 0.95)
"""In percent: what the intervals claim; the shares of achieved gains that may lie inside."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One remedy of one case."""

    case: str
    remedy: str
    predicted: float | None
    low: float | None = None
    high: float | None = None
    then: str = ""
    """The limit that comes next, or why there is no prediction."""
    achieved: float
    faulty_rate: float
    """Samples per second, unrecorded; likewise with the remedy."""
    remedied_rate: float
    load: str = "none"

    @property
    def error(self) -> float | None:
        """Predicted over achieved, minus 1."""
        return None if self.predicted is None else self.predicted / self.achieved - 1


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure what was asked for; the figures of all rows that are kept."""
    options = _options(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that faults are undone
    for load in options.load:
        with background("none" if options.again else load):
            for name, remedies in plan().items():
                if not options.only or name in options.only:
                    fresh = ask_again if options.again else _tried
                    keep(name, load, fresh(name, load, remedies, options))
    rows = load_rows()
    if not options.only:
        results.write_section("predict_gain", section(rows))
    figures = summary(rows)
    print(figures)
    return figures


def _tried(name: str, load: str, remedies: list[Applied], options: argparse.Namespace) -> list[Row]:
    try:
        rows = measure(find_case(name), load, remedies, options)
    except (NotPlanted, JobError) as reason:
        print(f"{name:32} not measured: {reason}", flush=True)
        return []
    for row in rows:
        print(_line(row), flush=True)
    return rows


def ask_again(name: str, load: str, remedies: list[Applied], _: argparse.Namespace) -> list[Row]:
    """What the model says today, beside what was achieved then."""
    kept = [row for row in load_rows() if (row.case, row.load) == (name, load)]
    rows = [
        judge(find_case(name), load, remedy, row.faulty_rate, row.remedied_rate)
        for remedy, row in zip(remedies, kept, strict=bool(kept))
    ]
    for row in rows:
        print(_line(row), flush=True)
    return rows


def measure(
    case: Case, load: str, remedies: list[Applied], options: argparse.Namespace
) -> list[Row]:
    """Record once, then the job as it was and with each remedy, in turns."""
    run_dir = recording_of(case, load)
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    recorder = (*FUELLINE, "run", "--quiet", "--run-dir", str(run_dir), "--")
    run_job(case, faulty=True, measure=False, recorder=recorder)
    jobs = [case, *(remedy.job(case) for remedy in remedies)]
    rates: list[list[float]] = [[] for _ in jobs]
    for _ in range(options.runs):
        for job, told in zip(jobs, rates, strict=True):
            short = replace(job, args=f"{job.args} --seconds {options.seconds:g}")
            told.append(run_job(short, faulty=True, measure=False).samples_per_s)
    faulty, *remedied = [statistics.median(told) for told in rates]
    return [
        judge(case, load, remedy, faulty, rate)
        for remedy, rate in zip(remedies, remedied, strict=True)
    ]


def recording_of(case: Case, load: str) -> Path:
    return OUT / f"{case.name}.{load}"


def judge(case: Case, load: str, remedy: Applied, faulty: float, rate: float) -> Row:
    """What the model says from the recording, beside what came of it."""
    (answer,) = ask_run(recording_of(case, load), remedy.question).forecasts
    speedup = answer.speedup
    known = speedup if isinstance(speedup, Reading) else None
    return Row(
        case=case.name,
        remedy=answer.words,
        predicted=known.value if known else None,
        low=known.low if known else None,
        high=known.high if known else None,
        then=speedup.reason if isinstance(speedup, Missing) else answer.limit_words,
        achieved=rate / faulty,
        faulty_rate=faulty,
        remedied_rate=rate,
        load=load,
    )


def summary(rows: list[Row]) -> dict[str, Any]:
    """The figures of the issue."""
    errors = sorted(abs(row.error) for row in rows if row.error is not None)
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault((row.case, row.load), []).append(row)
    choices = {name: told for name, told in cases.items() if len(told) > 1}
    ranked = sum(is_ranked_right(told) for told in choices.values())
    figures = {
        "cases": len(cases),
        "remedies": len(rows),
        "predicted": len(errors),
        "median_error": statistics.median(errors) if errors else None,
        "p90_error": errors[min(len(errors) - 1, int(0.9 * len(errors)))] if errors else None,
        "inside_interval": {load: covered(rows, load) for load in sorted({r.load for r in rows})},
        "ranked_right": ranked,
        "ranked_of": len(choices),
    }
    return {**figures, "passed": _passes(figures)}


def covered(rows: list[Row], load: str) -> float | None:
    """Share of the achieved gains that lie inside the intervals that were stated."""
    inside = [
        row.low <= row.achieved <= row.high
        for row in rows
        if row.load == load and row.low is not None and row.high is not None
    ]
    return sum(inside) / len(inside) if inside else None


def _passes(figures: dict[str, Any]) -> bool:
    low, high = COVERED_BAR
    return (
        figures["median_error"] is not None
        and figures["median_error"] <= MEDIAN_BAR
        and figures["p90_error"] <= P90_BAR
        and figures["ranked_right"] >= RANK_BAR * figures["ranked_of"]
        and all(low <= (share or 0.0) <= high for share in figures["inside_interval"].values())
    )


def is_ranked_right(told: list[Row]) -> bool:
    """Whether the remedy with the highest prediction does as well as the best."""
    known = [row for row in told if row.predicted is not None]
    if not known:
        return False
    first = max(known, key=lambda row: row.predicted or 0.0)
    return first.achieved >= (1 - RUN_TO_RUN) * max(row.achieved for row in told)


def keep(name: str, load: str, fresh: list[Row]) -> None:
    """Replace the rows of a case under a load."""
    kept = [row for row in load_rows() if (row.case, row.load) != (name, load)]
    OUT.mkdir(parents=True, exist_ok=True)
    ROWS.write_bytes(msgspec.json.format(msgspec.json.encode([*kept, *fresh])))


def load_rows() -> list[Row]:
    """What was kept so far."""
    return msgspec.json.decode(ROWS.read_bytes(), type=list[Row]) if ROWS.exists() else []


def section(rows: list[Row]) -> str:
    """The part of the results page."""
    figures = summary(rows)
    lines = [
        "## Predicted against achieved gain",
        "",
        f"`python -m bench.predict_gain`, {results.machine()}.",
        "",
        "| figure | measured | bar |",
        "| --- | --- | --- |",
        (
            f"| error of {figures['predicted']} predictions, median | "
            f"{_frac(figures['median_error'])} | {MEDIAN_BAR:.0%} |"
        ),
        f"| 90th percentile | {_frac(figures['p90_error'])} | {P90_BAR:.0%} |",
        *(
            f"| achieved inside the {LEVEL} % interval, load: {load} | {_frac(share)} | "
            f"{COVERED_BAR[0]:.0%} to {COVERED_BAR[1]:.0%} |"
            for load, share in figures["inside_interval"].items()
        ),
        (
            f"| refused for lack of evidence | {figures['remedies'] - figures['predicted']} of "
            f"{figures['remedies']} | |"
        ),
        (
            f"| best remedy ranked first | {figures['ranked_right']} of {figures['ranked_of']} | "
            f"{RANK_BAR:.0%} |"
        ),
        "",
        "| case | load | remedy | predicted | achieved | error | then |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_table_row(row) for row in rows),
    ]
    return "\n".join(lines)


def _table_row(row: Row) -> str:
    if row.predicted is None:
        return (
            f"| {row.case} | {row.load} | {row.remedy} | - | {row.achieved:.2f}x | - | {row.then} |"
        )
    return (
        f"| {row.case} | {row.load} | {row.remedy} | "
        f"{row.predicted:.2f}x ({row.low:.2f}-{row.high:.2f}) | "
        f"{row.achieved:.2f}x | {row.error:+.0%} | {row.then} |"
    )


def _frac(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _line(row: Row) -> str:
    told = "-" if row.predicted is None else f"{row.predicted:.2f} ({row.low:.2f}-{row.high:.2f})"
    error = "" if row.error is None else f"{row.error:+.0%}"
    return (
        f"{row.case:32} {row.remedy:34} predicted {told:>18} achieved {row.achieved:5.2f} "
        f"{error:>5}  {row.then}"
    )


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.predict_gain")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these cases")
    parser.add_argument("--runs", type=int, default=1, help="turns of each job (default 1)")
    parser.add_argument("--seconds", type=float, default=7.0, help="of each turn (default 7)")
    parser.add_argument("--load", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument(
        "--again", action="store_true", help="ask about kept recordings; run nothing"
    )
    return parser.parse_args(argv or [])


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:])["passed"] else 1)
