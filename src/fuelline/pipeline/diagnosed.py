"""Any run: its diagnosis, for people and for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from fuelline import __version__
from fuelline.ingest import is_trace
from fuelline.schema.foreign import encode_json
from fuelline.schema.names import encodable
from fuelline.store.listing import SeenVerdict, keep_verdict

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from fuelline.schema.diagnosis.findings import Diagnosis


def diagnose_run(run_dir: Path, price: float | None = None) -> Diagnosis:
    """Read a run, compacting it on the way if it has ended, and diagnose it.

    What an ended run came to is kept beside it, for `fuelline runs`.
    """
    diagnosis = _diagnose(run_dir, price)
    if diagnosis.run.exit_code is not None or (diagnosis.run.tier and diagnosis.run.seconds):
        verdict = diagnosis.verdict
        seen = SeenVerdict(
            words=diagnosis.title(),
            code=verdict.code,
            stage=verdict.stage,
            limit=verdict.limit,
            share_of_wall=verdict.share_of_wall,
            samples_per_s=diagnosis.steps.samples_per_s,
            fuelline_version=__version__,
        )
        keep_verdict(run_dir, seen)
    return diagnosis


def _diagnose(run_dir: Path, price: float | None) -> Diagnosis:
    # Each way loads only what it needs: an imported run is neither modelled nor fixed.
    if is_trace(run_dir):
        from fuelline.pipeline.imported import diagnose_trace  # noqa: PLC0415

        return diagnose_trace(run_dir, price)
    from fuelline.fix.tune.outcomes import adopt_measured, summarise_fixes  # noqa: PLC0415
    from fuelline.pipeline.recorded import (  # noqa: PLC0415
        diagnose_recording,
        find_fixes,
        find_served,
    )
    from fuelline.whatif import restate  # noqa: PLC0415

    diagnosis, fixes = diagnose_recording(run_dir, price), summarise_fixes(find_fixes(run_dir))
    # A cause that was found has its own remedies; without one these are all there is to say.
    is_healthy = diagnosis.verdict.limit == "math"
    answered = msgspec.structs.replace(
        diagnosis,
        fixes=fixes,
        settings=diagnosis.settings if fixes or is_healthy else [],
        served=find_served(run_dir),
    )
    adopted = adopt_measured(diagnosis.recommended, diagnosis.fixed, fixes)
    return answered if adopted is diagnosis.recommended else restate(answered, adopted)


def diagnose_as_json(run_dir: Path, price: float | None = None) -> str:
    """The contract of `diagnose --json`."""
    return encode_json(diagnose_run(run_dir, price))


def show_report(
    run_dir: Path,
    *,
    name: str,
    price: float | None,
    stream: TextIO | None,
    python: str | None = None,
    shape: Literal["json", "markdown", "report"] = "report",
    page: Path | None = None,
) -> None:
    """The diagnosis for people; `name` is the word by which commands find the run.

    `python` is what `fuelline run` starts scripts with: a job that is repeated need not name it.
    `page`: the file that is to show it as well, or instead if there is no stream.
    """
    diagnosis = diagnose_run(run_dir, price)
    if stream is not None and shape == "json":
        stream.write(encode_json(diagnosis) + "\n")
    elif stream is not None:
        from fuelline.report import (  # noqa: PLC0415 - JSON needs none
            render_markdown,
            render_terminal,
            write_document,
        )

        document = write_document(diagnosis, encodable(name), python)
        if shape == "markdown":
            stream.write(render_markdown(document))
        else:
            render_terminal(document, stream)
    if page is not None:
        from fuelline.pipeline.paged import write_run_page  # noqa: PLC0415 - most need no page

        write_run_page(diagnosis, run_dir, page, name=name, python=python)
