"""Any run: its diagnosis, for people and for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.ingest import is_trace
from fuelline.schema.foreign import encode_json
from fuelline.schema.names import encodable

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from fuelline.schema.diagnosis.findings import Diagnosis


def diagnose_run(run_dir: Path, price: float | None = None) -> Diagnosis:
    """Read a run, compacting it on the way if it has ended, and diagnose it."""
    # Each way loads only what it needs: an imported run is neither modelled nor fixed.
    if is_trace(run_dir):
        from fuelline.pipeline.imported import diagnose_trace  # noqa: PLC0415

        return diagnose_trace(run_dir, price)
    from fuelline.fix.tune.outcomes import adopt_measured, summarise_fixes  # noqa: PLC0415
    from fuelline.pipeline.recorded import diagnose_recording, find_fixes  # noqa: PLC0415

    diagnosis, fixes = diagnose_recording(run_dir, price), summarise_fixes(find_fixes(run_dir))
    settings = diagnosis.settings if fixes else []
    recommended = adopt_measured(diagnosis.recommended, diagnosis.fixed, fixes)
    return msgspec.structs.replace(
        diagnosis, fixes=fixes, settings=settings, recommended=recommended
    )


def diagnose_as_json(run_dir: Path, price: float | None = None) -> str:
    """The contract of `diagnose --json`."""
    return encode_json(diagnose_run(run_dir, price))


def show_report(run_dir: Path, *, name: str, price: float | None, stream: TextIO) -> None:
    """The diagnosis for people; `name` is the word by which commands find the run."""
    from fuelline.report import render_terminal, write_document  # noqa: PLC0415 - JSON needs none

    render_terminal(write_document(diagnose_run(run_dir, price), encodable(name)), stream)
