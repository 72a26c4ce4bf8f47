"""An hour of training at 10 steps/s with 8 workers: size of its recording, time of its diagnosis.

A real run of 80 s is recorded; its middle, repeated, makes the hour (see `stretch.py`). The size is
also extrapolated from the real run alone, so that a mistake in the stretching would show.

    python -m bench.hour
"""

from __future__ import annotations

import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from bench import results
from bench.stretch import stretch
from bench.zoo.case import HEALTHY, Case
from bench.zoo.job import run_job
from bench.zoo.record import FUELLINE, diagnose

OUT = Path(__file__).with_name("out")
HOUR_S = 3600.0
SIZE_BAR_BYTES = 5_000_000
DIAGNOSE_BAR_S = 2.0
REPEATS = 5

JOB = Case(
    name="hour",
    sentence="10 steps/s with 8 workers.",
    job="tokens",
    data="tokens",
    args="--workers 8 --batch 8 --fixed-ms 100 --sample-ms 0 --seconds 80",
    truth=(HEALTHY,),
)


def main() -> dict[str, Any]:
    """The figures and whether they meet their bars."""
    minute, hour = OUT / "runs" / "minute", OUT / "runs" / "hour"
    record(minute)
    repeats = stretch(minute, hour, HOUR_S)
    raw_bytes = folder_bytes(hour)
    _, first_s = diagnose(hour)
    told, _ = diagnose(minute)
    again_s = statistics.median(diagnose(hour)[1] for _ in range(REPEATS))
    figures = {
        "repeats": repeats,
        "steps_per_s": round(1 / told["steps"]["mean"], 2),
        "hour_bytes": folder_bytes(hour),
        "hour_raw_bytes": raw_bytes,
        "hour_bytes_extrapolated": round(folder_bytes(minute) * HOUR_S / told["run"]["seconds"]),
        "diagnose_s": round(again_s, 2),
        "diagnose_first_s": round(first_s, 2),
    }
    figures["passed"] = (
        figures["hour_bytes"] <= SIZE_BAR_BYTES and figures["diagnose_s"] <= DIAGNOSE_BAR_S
    )
    results.write_section("hour", markdown(figures))
    return figures


def record(run_dir: Path) -> None:
    """Record the real run, and leave it raw."""
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    recorder = (*FUELLINE, "run", "--quiet", "--run-dir", str(run_dir), "--")
    run_job(JOB, faulty=True, measure=False, recorder=recorder)


def folder_bytes(folder: Path) -> int:
    """Size of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def markdown(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    size_mb, raw_mb = figures["hour_bytes"] / 1e6, figures["hour_raw_bytes"] / 1e6
    extrapolated_mb = figures["hour_bytes_extrapolated"] / 1e6
    return f"""## An hour at {figures["steps_per_s"]} steps/s with 8 workers

`python -m bench.hour`, {results.machine()}. The hour is a real run of 80 s, repeated.

| figure | measured | bar |
| --- | --- | --- |
| size of the recording | {size_mb:.2f} MB ({extrapolated_mb:.2f} MB by the real run) | 5 MB |
| raw, before compaction | {raw_mb:.1f} MB | |
| diagnosis, the command as a whole | {figures["diagnose_s"]} s | 2 s |
| the first one, with compaction | {figures["diagnose_first_s"]} s | |"""


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
