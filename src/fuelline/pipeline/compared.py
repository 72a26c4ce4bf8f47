"""Runs compared: what changed, beyond the noise."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Literal

from fuelline.ingest import (
    is_trace,
    load_trace,
)
from fuelline.pipeline.diagnosed import diagnose_run
from fuelline.pipeline.imported import diagnose_survey, import_files
from fuelline.pipeline.recorded import segment_judged
from fuelline.report import (
    render_markdown,
    render_terminal,
    write_comparison,
)
from fuelline.report.document import Summary
from fuelline.report.renderers.junit import write_junit
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.files import make_draft_folder
from fuelline.schema.foreign import encode_json
from fuelline.schema.units import percent
from fuelline.signals.changes import compare_sides
from fuelline.signals.sampling import sample_recording, sample_trace
from fuelline.signals.traced import BLINDING, survey_trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from fuelline.report import Document
    from fuelline.report.renderers.junit import Outcome
    from fuelline.schema.diagnosis.comparison import RunComparison, RunSamples


NamedRun = tuple[Path, str]
"""A run's folder or a trace file, and its name."""


def compare_runs(
    before: Sequence[NamedRun],
    after: Sequence[NamedRun],
    *,
    threshold: float | None,
    shape: Literal["json", "markdown", "report"],
    stream: TextIO,
    page: Path | None = None,
    junit: Path | None = None,
) -> bool:
    """Write what changed, with one or more recordings of each side; is it over?

    `page`: the file that is to show it as well; `junit`: the one that says whether it is over.
    """
    comparison = compare_named(before, after, threshold=threshold)
    document = write_comparison(comparison)
    if shape == "json":
        stream.write(encode_json(comparison) + "\n")
    elif shape == "markdown":
        stream.write(render_markdown(document))
    else:
        render_terminal(document, stream)
    if page is not None:
        from fuelline.pipeline.paged import write_document_page  # noqa: PLC0415 - most need none

        title = f"{comparison.before.label} and {comparison.after.label}"
        write_document_page(document, page, title)
    if junit is not None:
        _check(comparison, document, junit)
    return comparison.is_over


def _check(comparison: RunComparison, document: Document, path: Path) -> None:
    """As JUnit; without a threshold there is nothing that could fail."""
    limit = comparison.threshold
    case = "steps got no longer" + (f" than by {percent(limit)}" if limit is not None else "")
    words = next(block.sentence for block in document.blocks if isinstance(block, Summary))
    outcome: Outcome = "failure" if comparison.is_over else "passed"
    if comparison.judgement == "cannot tell":
        outcome = "skipped"
    write_junit(path, document, case, outcome, words)


def compare_named(
    before: Sequence[NamedRun], after: Sequence[NamedRun], *, threshold: float | None
) -> RunComparison:
    """The same as an answer."""
    with ExitStack() as stack:
        sides = [[(_as_run(path, stack), name) for path, name in side] for side in (before, after)]
        if len({is_trace(path) for side in sides for path, _ in side}) > 1:
            raise UsageError(
                "One of these runs was recorded, another imported. A recorded budget is the "
                "trainer's time, an imported ledger the device's, so their parts are not the same "
                "things. Nothing was compared. Compare two of a kind."
            )
        old, new = ([sample_run(*each) for each in side] for side in sides)
        return compare_sides(old, new, threshold)


def _as_run(path: Path, stack: ExitStack) -> Path:
    """A run's folder; a trace file is imported into one that lasts as long as the comparison."""
    if not path.is_file():
        return path
    draft = make_draft_folder(gettempdir(), "fuelline-compare")
    stack.callback(shutil.rmtree, draft, ignore_errors=True)
    run_dir = Path(draft) / "run"
    import_files([path], run_dir, partial=False, jobs=None)
    return run_dir


def sample_run(run_dir: Path, label: str) -> RunSamples:
    """A run step by step."""
    if is_trace(run_dir):
        survey = survey_trace(load_trace(run_dir))
        if not survey.accounts:
            raise InputError(
                f"{label} holds no device activity, so there is no ledger. Nothing was compared. "
                "`fuelline diagnose` shows what it holds."
            )
        diagnosis = diagnose_survey(survey, run_dir)
        samples = sample_trace(survey, diagnosis, label)
        lost = [each.problem for each in diagnosis.quality if each.code in BLINDING]
        if lost and not samples.is_stepped:
            raise InputError(
                f"{label} lacks much of what its devices did ({lost[0]}) and has no steps, so "
                "nothing in it can be held against another trace. Nothing was compared. Record it "
                "again with all device activity, or with marked steps."
            )
        return samples
    diagnosis = diagnose_run(run_dir)
    judged = segment_judged(run_dir)
    if judged is None:
        raise InputError(
            f"{label} has no steps: {diagnosis.verdict.sentence} Nothing was compared. Record at "
            "least two steps."
        )
    segments, work = judged
    return sample_recording(segments, diagnosis, label, work)
