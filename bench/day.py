"""A day of training at 10 steps/s with 8 workers, and the observer's journal of it: its diagnosis.

A real run of 80 s is recorded; its middle, repeated, makes the day (see `stretch.py`): 2 million
steps' records, and 260 MB of journal with 7 million rows. Measured is the real command as a whole:
wall time, and the peak memory of its processes.

    python -m bench.day
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import results
from bench.hour import folder_bytes, record
from bench.long_spool import ASK
from bench.stretch import stretch
from bench.zoo.record import FUELLINE
from fuelline.schema.run.samples import JOURNAL_NAME

OUT = Path(__file__).parent / "out" / "day"
DAY_S = 24 * 3600.0
BARS = {"first": 20.0, "again": 10.0}
"""Seconds; the first diagnosis compacts the run."""
BAR_BYTES = 500e6


def main() -> dict[str, Any]:
    """The figures and whether they meet their bars."""
    shutil.rmtree(OUT, ignore_errors=True)
    run_dir = OUT / "run"
    record(OUT / "short")
    stretch(OUT / "short", run_dir, DAY_S)
    figures: dict[str, Any] = {
        "journal_bytes": (run_dir / JOURNAL_NAME).stat().st_size,
        "raw_bytes": folder_bytes(run_dir),
    }
    figures |= {name: ask(run_dir) for name in BARS}
    figures["bytes"] = folder_bytes(run_dir)
    figures["passed"] = all(
        figures[name]["seconds"] <= bar and figures[name]["peak_rss_bytes"] <= BAR_BYTES
        for name, bar in BARS.items()
    )
    results.write_section("day", section(figures))
    shutil.rmtree(OUT)
    return figures


def ask(run_dir: Path) -> dict[str, float]:
    """What a diagnosis costs."""
    words = [sys.executable, "-c", ASK, *FUELLINE, "diagnose", str(run_dir)]
    told = subprocess.run(words, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(told.stdout)
    return figures


def section(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    rows = "\n".join(
        f"| {name} | {figures[name]['seconds']:.1f} s | {figures[name]['cpu_seconds']:.1f} s "
        f"| {figures[name]['peak_rss_bytes'] / 1e6:.0f} MB |"
        for name in BARS
    )
    return (
        f"## A day and its journal\n\n`python -m bench.day`, {results.machine()}. A real run of "
        f"80 s, repeated: {figures['raw_bytes'] / 1e6:.0f} MB raw, of which the observer's journal "
        f"has {figures['journal_bytes'] / 1e6:.0f}; {figures['bytes'] / 1e6:.1f} MB compacted. "
        f"At most 500 MB, {BARS['first']:.0f} s for the first diagnosis, which compacts, and "
        f"{BARS['again']:.0f} s for others.\n\n"
        f"| diagnosis | time | processor time | peak memory |\n| --- | --- | --- | --- |\n{rows}"
    )


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
