"""A run by itself: its facts and its tables, as they are and with the names that are public."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest import Hosts, find_parts, is_trace, load_trace
from fuelline.ingest.recording.folder import locate_recording, read_manifest, read_run_facts
from fuelline.schema.errors import UsageError
from fuelline.schema.files import is_below
from fuelline.schema.run.recording import MANIFEST_FILE, Blindspot
from fuelline.timeline.events import EVENT_TABLES, name_events
from fuelline.timeline.tables import TABLES
from fuelline.timeline.trace import TRACE_TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.run.recording import RunFacts
    from fuelline.timeline import Timeline

RECORDED = (*EVENT_TABLES, *(name for name in TABLES if name != "events"))
"""Tables of a recorded run; its events come as one table a kind."""
TRACED = tuple(TRACE_TABLES)
"""Tables of an imported run."""
_TIMES = ("at_ns", "from_ns", "until_ns", "window_ns")
"""Columns of samples that may be below zero; in all others that stands for what is not known."""


def read_facts(run_dir: Path) -> RunFacts:
    """What a run says about itself; of several hosts, what the first says."""
    first = next(iter(find_parts(run_dir)), run_dir)
    if is_below(first, MANIFEST_FILE):
        return read_manifest(first).run
    return read_run_facts(locate_recording(first))


def read_blindspots(run_dir: Path) -> list[Blindspot]:
    """What could not be seen, before anything is concluded."""
    if is_trace(run_dir):
        return [
            Blindspot(what="the trace", why=each.problem, forbids=each.forbids)
            for each in load_trace(run_dir).facts.quality
        ]
    recordings = Hosts(run_dir)
    found = [spot for timeline in recordings for spot in timeline.blindspots]
    return list(dict.fromkeys([*found, *recordings.lost]))


def list_tables(run_dir: Path) -> tuple[str, ...]:
    """The names of a run's tables; one that nothing was recorded for is empty, never absent."""
    return TRACED if is_trace(run_dir) else RECORDED


def read_tables(run_dir: Path, name: str) -> pl.DataFrame:
    """One table over all hosts (column `host`) or ranks (column `rank`) of a run."""
    if name not in list_tables(run_dir):
        kind = "imported" if is_trace(run_dir) else "recorded"
        raise UsageError(
            f"There is no table {name!r} in {kind} runs. Nothing was read. There are: "
            f"{', '.join(list_tables(run_dir))}."
        )
    if is_trace(run_dir):
        trace = load_trace(run_dir)
        frames = [_numbered(trace.table(name, rank), "rank", rank) for rank in trace.ranks]
        empty = pl.DataFrame(schema=dict(TRACE_TABLES[name]))
        return pl.concat(frames or [_numbered(empty, "rank", 0)])
    hosts = enumerate(Hosts(run_dir))
    return pl.concat([_numbered(read_one(timeline, name), "host", at) for at, timeline in hosts])


def read_one(timeline: Timeline, name: str) -> pl.DataFrame:
    """One table of one host."""
    if name in EVENT_TABLES:
        return name_events(timeline.table("events"), name)
    return timeline.table(name).with_columns(
        pl.when(pl.col(column) >= 0).then(pl.col(column)).alias(column)
        for column, kind in TABLES[name].items()
        if kind.is_integer() and column not in _TIMES
    )


def _numbered(frame: pl.DataFrame, column: str, number: int) -> pl.DataFrame:
    return frame.select(pl.lit(number, pl.Int32()).alias(column), pl.all())
