"""Real GPU traces replayed as recordings: is the device's time found as the trace's ledger has it?

`bench/replay` over every Kineto trace with a loader or an optimizer in FUELLINE_TRACES. The bars
are for device idle, waiting for input and launch-bound; others' traces are not copied into this
project.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from bench import results
from bench.replay.__main__ import BAR_POINTS, JUDGED, replay
from bench.replay.events import NotReplayableError
from fuelline.schema.errors import FuellineError

TRACES = Path(
    os.environ.get("FUELLINE_TRACES", Path(__file__).parents[2] / "shared" / "data" / "traces")
)


def main(folder: Path = TRACES) -> dict[str, Any]:
    """Replay all that can be, write the section, give the figures."""
    told = [row for path in sorted(folder.rglob("*.json.gz")) if (row := _try(path)) is not None]
    apart = {
        name: max(
            (points for row in told if (points := _apart(row, name)) is not None), default=None
        )
        for name in JUDGED
    }
    known = sum(all(_apart(row, name) is not None for name in JUDGED) for row in told)
    figures = {
        "traces": len(told),
        "known": known,
        **{f"{name}_worst_points": worst for name, worst in apart.items()},
        "passed": bool(told)
        and known == len(told)
        and all(worst is not None and worst <= BAR_POINTS for worst in apart.values()),
    }
    results.write_section("replayed", section(told, folder))
    print(figures)
    return figures


def section(told: list[dict[str, Any]], folder: Path) -> str:
    """The part of the results page."""
    lines = [
        "## Real GPU traces, replayed as our hooks would have recorded them",
        "",
        f"`python -m bench replayed`, {results.machine()}. Percent of the device's time, true and",
        f"found; the bar is {BAR_POINTS:.0f} points each. A trace of fewer than three steps is",
        "laid out twelve times, one after the other.",
        "",
        "| trace | steps | " + " | ".join(name.replace("_", " ") for name in JUDGED) + " |",
        "| --- | --- |" + " --- |" * len(JUDGED),
    ]
    for row in told:
        name = Path(row["trace"]).relative_to(folder).with_suffix("").with_suffix("")
        cells = " | ".join(
            f"{_percent(row['true'][each])}, {_percent(row['found'][each])}" for each in JUDGED
        )
        lines.append(f"| {name} | {row['steps']} | {cells} |")
    return "\n".join(lines)


def _try(path: Path) -> dict[str, Any] | None:
    try:
        return replay(path)
    except (NotReplayableError, FuellineError):
        return None


def _apart(row: dict[str, Any], name: str) -> float | None:
    true, found = row["true"][name], row["found"][name]
    return None if true is None or found is None else 100 * abs(found - true)


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f}"


if __name__ == "__main__":
    sys.exit(0 if main()["passed"] else 1)
