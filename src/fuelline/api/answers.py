"""The commands as functions: a run in, an answer out, the same as the command's `--json`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline import pipeline
from fuelline.api.run import Run
from fuelline.schema.errors import UsageError
from fuelline.schema.mistakes import tell_plainly
from fuelline.store.runs import find_run, name_run, new_run_dir, note_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.comparison import RunComparison
    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.diagnosis.forecasts import Forecast

AnyRun = Run | str | os.PathLike[str] | None
"""A Run, its folder, its id, the unique beginning of its id, the name of its job, or None for the
run that was started last."""


@tell_plainly
def load(run: str | os.PathLike[str] | None = None) -> Run:
    """A run by its folder, its id or its job's name; the one started last without a word.

    Raises:
        NotARecordingError: there is no such run.
        InputError: it is there, but cannot be read.
    """
    found = Run(locate(run))
    found.facts  # noqa: B018 - raises here and not at the first use
    return found


@tell_plainly
def diagnose(run: AnyRun = None, *, usd_per_hour: float | None = None) -> Diagnosis:
    """What the accelerator of a run waited for; `fuelline diagnose`.

    `usd_per_hour` is the price of one accelerator-hour; with it, losses are in money, too.
    """
    from fuelline.api.shown import show_in_notebooks  # noqa: PLC0415 - which knows the nouns

    check_price(usd_per_hour)
    show_in_notebooks()
    return pipeline.diagnose_run(locate(run), usd_per_hour)


@tell_plainly
def import_traces(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    output: str | os.PathLike[str] | None = None,
    partial: bool = False,
    jobs: int = 1,
) -> Run:
    """A run made of what profilers recorded: files of one job, or folders of them.

    `output` is the new run's folder, by default one among the recorded runs. `partial` reads what
    there is of files that were cut short. More than one of `jobs` starts processes that import the
    caller's script again, as `multiprocessing` does: it then needs `if __name__ == "__main__":`.
    """
    named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [Path(path) for path in named]
    if not files or jobs < 1:
        what = "No file was named" if not files else f"jobs={jobs} is not a number of processes"
        raise UsageError(
            f"{what}. Nothing was imported. Give a file, such as import_traces('rank0.json.gz')."
        )
    name = files[0].name.partition(".")[0]
    run_dir = new_run_dir(name) if output is None else Path(output)
    pipeline.import_files(files, run_dir, partial=partial, jobs=jobs)
    note_run(run_dir, name)
    return Run(run_dir)


@tell_plainly
def suggest(run: AnyRun = None, *, usd_per_hour: float | None = None) -> list[Forecast]:
    """What would help a run most, the best first; `fuelline whatif` without a question."""
    from fuelline.schema.diagnosis.forecasts import WhatIf  # noqa: PLC0415 - loads msgspec

    check_price(usd_per_hour)
    return pipeline.ask_run(locate(run), WhatIf(), usd_per_hour).forecasts


@tell_plainly
def compare(
    before: AnyRun | list[AnyRun], after: AnyRun | list[AnyRun], *, threshold: float | None = None
) -> RunComparison:
    """What changed between two runs or trace files, and whether that is more than noise.

    Several recordings of the same job may be given for either side. With `threshold`, a share such
    as 0.05, `is_over` says whether steps got longer by more.
    """
    sides = (side if isinstance(side, list) else [side] for side in (before, after))
    old, new = ([(path, name_run(path)) for path in map(locate, side)] for side in sides)
    return pipeline.compare_named(old, new, threshold=threshold)


def locate(run: AnyRun) -> Path:
    """Its folder."""
    if isinstance(run, Run):
        return run.path
    return find_run(None if run is None else os.fspath(run))


def check_price(usd_per_hour: float | None) -> None:
    """Raise UsageError if it is none."""
    if usd_per_hour is not None and not 0 < usd_per_hour < 1e6:
        raise UsageError(
            f"usd_per_hour={usd_per_hour!r} is not a price between 0 and 1,000,000. Nothing was "
            "asked. Leave it out to have losses in time only."
        )
