"""What a diagnosis says of the run itself, recorded or imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import RunSummary
from fuelline.schema.names import encodable

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.run.recording import RunFacts


def summarise(run: RunFacts, run_dir: Path) -> RunSummary:
    """What a diagnosis says of the run itself."""
    return RunSummary(
        run_id=run.run_id,
        command=run.command,
        host=run.host,
        exit_code=run.exit_code,
        seconds=None if run.ended_ns is None else (run.ended_ns - run.started_ns) / 1e9,
        path=encodable(str(run_dir)),
        tier="" if run.attached is None else run.attached.tier,
    )
