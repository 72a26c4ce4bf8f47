"""Rows as runs would have left them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuelline.fleet.shelf import encode_row, place_of, put
from fuelline.schema.diagnosis.fleet import FleetCause, FleetRun

if TYPE_CHECKING:
    from pathlib import Path

NOW_S = 1_780_000_000.0
DAY_S = 86400.0


def make_run(number: int = 0, **fields: Any) -> FleetRun:
    """An hour on four chips of which input took half."""
    usual: dict[str, Any] = {
        "run_id": f"20260528-000000-train-{number}",
        "job": "train",
        "user": "anna",
        "host": "node1",
        "chip": "NVIDIA H100 80GB HBM3",
        "devices": 4,
        "started_s": NOW_S + number,
        "seconds": 3600.0,
        "exit_code": 0,
        "code": "PR201",
        "title": "PR201 too few workers",
        "causes": [FleetCause(code="PR201", title="too few workers", lost_seconds=1800.0)],
        "samples_per_s": 100.0,
        "advice": "DataLoader(..., num_workers=8)",
        "gain": 2.0,
    }
    return FleetRun(**{**usual, **fields})


def fill(store: Path, *runs: FleetRun) -> str:
    """Put them there; the store as it is named on the command line."""
    for run in runs:
        put(str(store), place_of(run), encode_row(run))
    return str(store)
