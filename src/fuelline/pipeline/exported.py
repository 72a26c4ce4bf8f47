"""A run as tracks for Perfetto."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.ingest import (
    Hosts,
    is_trace,
    load_trace,
)
from fuelline.pipeline.diagnosed import diagnose_run
from fuelline.report.perfetto import SIGN, draw_findings, draw_recording, draw_trace, write_tracks
from fuelline.report.renderers.whole_file import check_free, write_named
from fuelline.signals import (
    align_hosts,
    view_host,
)
from fuelline.signals.traced import is_scrape, survey_trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fuelline.report.perfetto.track import Track
    from fuelline.schema.diagnosis.findings import Window


def export_perfetto(run_dir: Path, path: Path) -> int:
    """Write a run for Perfetto, all of it or nothing; how many events it has."""
    check_free(path, SIGN)
    diagnosis = diagnose_run(run_dir)
    tracks = _draw_trace(run_dir) if is_trace(run_dir) else _draw_recording(run_dir)
    window = diagnosis.window
    span = None if window is None else _span(run_dir, window)
    title = f"fuelline {__version__}: {diagnosis.run.run_id}"
    with write_named(path, SIGN) as stream:
        return write_tracks(chain(draw_findings(diagnosis, span), tracks), stream, title)


def _span(run_dir: Path, window: Window) -> tuple[int, int]:
    """The window on the clock of the tracks, which begins with the run."""
    ends_ns = (
        int(window.before_seconds * 1e9),
        int(window.before_seconds * 1e9) + int(window.seconds * 1e9),
    )
    if is_trace(run_dir):
        return ends_ns
    timeline = Hosts(run_dir).read(0)
    began_ns, excerpts = timeline.run.started_ns, timeline.excerpts
    if excerpts is None:
        return ends_ns
    return excerpts.fold(began_ns + ends_ns[0]) - began_ns, excerpts.fold(
        began_ns + ends_ns[1]
    ) - began_ns


def _draw_trace(run_dir: Path) -> Iterator[Track]:
    trace = load_trace(run_dir)
    if is_scrape(trace):
        return draw_trace(trace, {}, {})
    survey = survey_trace(trace)
    parts = {(each.ledger.rank, each.ledger.device): each.all_pieces() for each in survey.accounts}
    steps = {rank: found.spans for rank, found in survey.steps.items() if found.spans.height}
    return draw_trace(trace, parts, steps)


def _draw_recording(run_dir: Path) -> Iterator[Track]:
    recordings = Hosts(run_dir)
    hosts = align_hosts([view_host(timeline) for timeline in recordings])
    origin_ns = min(host.run.started_ns + host.offset.shift_ns for host in hosts)
    for number, host in enumerate(hosts):
        label = f"{host.run.host}: " if len(hosts) > 1 else ""
        shift_ns = host.offset.shift_ns - origin_ns
        yield from draw_recording(recordings.read(number), host.trainers, shift_ns, label)
