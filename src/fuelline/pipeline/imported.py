"""An imported run: files of a profiler -> tables -> survey -> diagnosis."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Protocol

import msgspec

from fuelline import __version__
from fuelline.diagnose import diagnose, judge_scrapes
from fuelline.ingest import (
    find_sources,
    import_trace,
    load_trace,
)
from fuelline.pipeline.summary import summarise
from fuelline.schema.names import encodable
from fuelline.schema.redaction import redact_command
from fuelline.schema.run.recording import RunFacts
from fuelline.signals.traced import (
    is_scrape,
    measure_scrapes,
    measure_survey,
    picture_trace,
    survey_trace,
)
from fuelline.signals.traced.stragglers import blame_root, measure_stragglers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fuelline.ingest.imports import Spread
    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.diagnosis.picture import RunPicture
    from fuelline.signals.traced import Survey


class Progress(Protocol):
    """Called with how far a long read has come."""

    def expect(self, size_bytes: int) -> None:
        """How much there will be."""
        ...

    def advance(self, size_bytes: int) -> None:
        """So much more was read."""
        ...


class _NoProgress:
    """Nobody watches."""

    def expect(self, size_bytes: int) -> None:
        """See `Progress`."""

    def advance(self, size_bytes: int) -> None:
        """See `Progress`."""


def import_files(
    paths: Sequence[Path],
    run_dir: Path,
    *,
    partial: bool,
    jobs: int | None,
    progress: Progress | None = None,
    splits: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    spread: Spread | None = None,
) -> list[Path]:
    """Make a run of profilers' files: all of it or, on any error, nothing.

    Files of different times are runs of their own if it `splits`, and refused otherwise.
    """
    sources = find_sources(paths)
    watched = progress or _NoProgress()
    watched.expect(sum(path.stat().st_size for path in sources))
    run = RunFacts(
        run_id=run_dir.name,
        command=["fuelline", "import", *redact_command(encodable(str(path)) for path in paths)],
        host=socket.gethostname(),
        started_wall_ns=time.time_ns(),
        started_ns=0,
        exit_code=0,
        fuelline_version=__version__,
    )
    return import_trace(
        sources,
        run_dir,
        run,
        partial=partial,
        jobs=jobs,
        advance=watched.advance,
        splits=splits,
        tell=tell,
        spread=spread,
    )


def list_parts(run_dir: Path) -> tuple[int, list[int]]:
    """Of an imported run: how many files it was made of, and its ranks."""
    trace = load_trace(run_dir)
    return len(trace.facts.sources), trace.ranks


def diagnose_trace(run_dir: Path, price: float | None) -> Diagnosis:
    """The same answer for an imported trace."""
    trace = load_trace(run_dir)
    if is_scrape(trace):
        summary = summarise(trace.run, run_dir)
        return judge_scrapes(summary, measure_scrapes(trace), trace.facts.quality, price)
    return diagnose_survey(survey_trace(trace), run_dir, price)


def picture_import(run_dir: Path) -> RunPicture | None:
    """An imported trace over time, for a page; None for scrapes, which have no events."""
    trace = load_trace(run_dir)
    return None if is_scrape(trace) else picture_trace(survey_trace(trace))


def diagnose_survey(survey: Survey, run_dir: Path, price: float | None = None) -> Diagnosis:
    """What a survey of all ranks comes to."""
    measured = measure_survey(survey)
    stragglers = measure_stragglers(survey.trace)
    facts = msgspec.structs.replace(measured.facts, stragglers=stragglers)
    diagnosis = diagnose(facts, summarise(survey.trace.run, run_dir), [], price)
    collectives = blame_root(measured.collectives, stragglers)
    return msgspec.structs.replace(diagnosis, trace=measured.answer, collectives=collectives)
