"""Which excerpts are judged of a run whose hosts left more records together than one process can.

Each host has already kept what can be judged of it alone (`excerpts`); a diagnosis of hundreds of
ranks compares all of them at once. Of each host the same share is judged, at the same moments of
the wall clock, so that collectives still match. The recording itself is not changed.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.recording.excerpts import (
    MOST_RECORDS_OF_HOST,
    choose_rows,
    cut_events,
    fold_limits,
    fold_tables,
    shift_tables,
    state_excerpts,
)
from fuelline.ingest.recording.folder import read_manifest, read_run_facts
from fuelline.ingest.recording.spool import count_records
from fuelline.schema.errors import InputError
from fuelline.schema.files import is_below, list_below
from fuelline.schema.run.recording import MANIFEST_FILE, SPOOL_DIR, Excerpts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fuelline.timeline import Timeline

MOST_RECORDS_OF_RUN = 3_000_000
"""Of all hosts: 64 ranks over an hour left 11 million, and take 840 MB (bench/many_ranks.py)."""
_EXCERPTS = 64
"""In a run: of an hour each has nine seconds then, and the steps that their ends cut are few."""
_MOST_SHORTER = 4
"""How much shorter excerpts become before there are fewer of them: each should hold whole steps."""
_HOUR_NS = 3600 * 10**9
_LEAST_BITS = 26
"""Of nanoseconds: no period is shorter than 67 ms, whatever a run says of its length."""
_SLICE_ROWS = 1 << 18
"""Looked through at a time."""


@dataclasses.dataclass(frozen=True)
class ExcerptShare:
    """What is judged of each host: one part of `parts`, a power of two."""

    parts: int
    records: int
    """Of all hosts."""
    period_ns: int
    """Of hosts that kept everything; from one excerpt to the next."""


def choose_share(hosts: Sequence[Path]) -> ExcerptShare | None:
    """What can be judged; None if that is everything, as of nearly all runs."""
    counts = [min(_count(host), MOST_RECORDS_OF_HOST) for host in hosts]
    records, parts = sum(counts), 1
    while records > parts * MOST_RECORDS_OF_RUN:
        parts *= 2
    if parts == 1:
        return None
    usual_ns = (max(_length(host) for host in hosts) or _HOUR_NS) // _EXCERPTS
    base_ns = 1 << max(_LEAST_BITS, usual_ns.bit_length() - 1)
    return ExcerptShare(parts, records, base_ns * max(1, parts // _MOST_SHORTER))


def _count(host: Path) -> int:
    """Records that its tables have, or will have."""
    try:
        if is_below(host, MANIFEST_FILE):
            events = read_manifest(host).tables.get("events")
            return 0 if events is None else max(0, events.rows)
        return sum(count_records(host / SPOOL_DIR / name) for name in list_below(host, SPOOL_DIR))
    except (InputError, OSError):  # whoever reads it says so
        return 0


def _length(host: Path) -> int:
    """How long it recorded; 0 if that is not known."""
    try:
        is_compacted = is_below(host, MANIFEST_FILE)
        run = read_manifest(host).run if is_compacted else read_run_facts(host)
    except InputError:
        return 0
    return max(0, (run.ended_ns or run.started_ns) - run.started_ns)


def take_share(timeline: Timeline, share: ExcerptShare) -> Timeline:
    """The same host with its part of each table."""
    wall_offset_ns = timeline.run.started_wall_ns - timeline.run.started_ns
    before = timeline.excerpts
    if before is None:
        start_ns = timeline.run.started_ns
        first_ns = start_ns - (start_ns + wall_offset_ns) % share.period_ns
        inner = after = Excerpts(
            first_ns=first_ns,
            period_ns=share.period_ns,
            kept_ns=share.period_ns // share.parts,
            records=share.records,
        )
    else:
        inner, after = _compose(before, share, wall_offset_ns)
    tables = dict(timeline.tables) | {"events": _cut(timeline.table("events"), inner)}
    stated = () if before is None else (state_excerpts(before),)
    others = [spot for spot in timeline.blindspots if spot not in stated]
    shift_ns = after.first_ns - inner.first_ns
    return dataclasses.replace(
        timeline,
        tables=shift_tables(fold_tables(tables, inner), shift_ns),
        limits=tuple(fold_limits(timeline.limits, inner, shift_ns)),
        blindspots=(*others, state_excerpts(after)),
        excerpts=after,
    )


def _compose(
    before: Excerpts, share: ExcerptShare, wall_offset_ns: int
) -> tuple[Excerpts, Excerpts]:
    """Excerpts of excerpts: on the clock of the tables, and on that of the run.

    Of every so many excerpts one is kept, and of that the beginning.
    """
    shorter = min(share.parts, _MOST_SHORTER)
    every = share.parts // shorter
    period_ns = before.period_ns * every
    early = (before.first_ns + wall_offset_ns) % period_ns // before.period_ns
    inner = Excerpts(
        first_ns=before.first_ns - early * before.kept_ns,
        period_ns=before.kept_ns * every,
        kept_ns=max(1, before.kept_ns // shorter),
        records=share.records,
    )
    after = Excerpts(
        first_ns=before.first_ns - early * before.period_ns,
        period_ns=period_ns,
        kept_ns=inner.kept_ns,
        records=share.records,
    )
    return inner, after


def _cut(events: pl.DataFrame, excerpts: Excerpts) -> pl.DataFrame:
    found = [events.clear()]
    for at in range(0, events.height, _SLICE_ROWS):
        piece = events.slice(at, _SLICE_ROWS)
        chosen = choose_rows(piece.with_row_index("at"), excerpts)
        found.append(cut_events(piece[chosen], excerpts))
    return pl.concat(found)
