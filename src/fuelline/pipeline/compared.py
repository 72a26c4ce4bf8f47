"""Two runs compared: what changed, beyond the noise."""

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
from fuelline.schema.errors import InputError, UsageError
from fuelline.schema.files import make_draft_folder
from fuelline.schema.foreign import encode_json
from fuelline.signals.changes import compare_samples
from fuelline.signals.sampling import sample_recording, sample_trace
from fuelline.signals.traced import survey_trace

if TYPE_CHECKING:
    from typing import TextIO

    from fuelline.schema.diagnosis.comparison import RunComparison, RunSamples


def compare_runs(
    before: tuple[Path, str],
    after: tuple[Path, str],
    *,
    threshold: float | None,
    shape: Literal["json", "markdown", "report"],
    stream: TextIO,
) -> bool:
    """Write what changed between two runs or trace files, each with its name; is it over?"""
    comparison = compare_two(before, after, threshold=threshold)
    if shape == "json":
        stream.write(encode_json(comparison) + "\n")
    elif shape == "markdown":
        stream.write(render_markdown(write_comparison(comparison)))
    else:
        render_terminal(write_comparison(comparison), stream)
    return comparison.is_over


def compare_two(
    before: tuple[Path, str], after: tuple[Path, str], *, threshold: float | None
) -> RunComparison:
    """The same as an answer."""
    with ExitStack() as stack:
        old = (_as_run(before[0], stack), before[1])
        new = (_as_run(after[0], stack), after[1])
        return _compare(old, new, threshold)


def _as_run(path: Path, stack: ExitStack) -> Path:
    """A run's folder; a trace file is imported into one that lasts as long as the comparison."""
    if not path.is_file():
        return path
    draft = make_draft_folder(gettempdir(), "fuelline-compare")
    stack.callback(shutil.rmtree, draft, ignore_errors=True)
    run_dir = Path(draft) / "run"
    import_files([path], run_dir, partial=False, jobs=None)
    return run_dir


def _compare(
    before: tuple[Path, str], after: tuple[Path, str], threshold: float | None
) -> RunComparison:
    if is_trace(before[0]) != is_trace(after[0]):
        raise UsageError(
            "One of these runs was recorded, the other imported. A recorded budget is the "
            "trainer's time, an imported ledger the device's, so their parts are not the same "
            "things. Nothing was compared. Compare two of a kind."
        )
    return compare_samples(sample_run(*before), sample_run(*after), threshold)


def sample_run(run_dir: Path, label: str) -> RunSamples:
    """A run step by step."""
    if is_trace(run_dir):
        survey = survey_trace(load_trace(run_dir))
        if not survey.accounts:
            raise InputError(
                f"{label} holds no device activity, so there is no ledger. Nothing was compared. "
                "`fuelline diagnose` shows what it holds."
            )
        return sample_trace(survey, diagnose_survey(survey, run_dir), label)
    diagnosis = diagnose_run(run_dir)
    judged = segment_judged(run_dir)
    if judged is None:
        raise InputError(
            f"{label} has no steps: {diagnosis.verdict.sentence} Nothing was compared. Record at "
            "least two steps."
        )
    segments, work = judged
    return sample_recording(segments, diagnosis, label, work)
