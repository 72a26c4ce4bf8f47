"""An imported run on disk: Parquet parts a rank and a table, and a manifest that is written last.

Import happens in a draft folder beside the run, which becomes the run when all is well, so that no
partial run is ever left behind. Every part has a checksum, so damage is noticed before it is
believed.
"""

from __future__ import annotations

import io
import zlib
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.parquet import DAMAGE, ERRORS, SUFFIX, brief, read_table
from fuelline.ingest.recording.folder import read_manifest, write_file
from fuelline.schema.errors import DamagedRecordingError, NotARecordingError
from fuelline.schema.run.recording import TableFacts
from fuelline.schema.run.trace import DeviceKind, HostKind, TraceFacts
from fuelline.timeline.tables import MOST_NS
from fuelline.timeline.trace import TRACE_TABLES, Trace, complete

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class WrittenPart:
    """One part of a table, with the rank as its source names it."""

    source: int
    table: str
    rank: int
    number: int
    facts: TableFacts

    @property
    def draft_name(self) -> str:
        """Its file while its rank may still be another file's, too."""
        return f"draft-{self.source}-{self.table}-{self.rank}-{self.number}{SUFFIX}"


class SourceWriter:
    """Writes the parts of one source's tables; ranks are those that the importer speaks of."""

    def __init__(self, folder: Path, source: int) -> None:
        self._folder = folder
        self._source = source
        self._counts: Counter[tuple[str, int]] = Counter()
        self.parts: list[WrittenPart] = []
        self.bounds_ns: list[int] = []
        """Some moments of the trace, its first and its last among them."""

    def add(self, table: str, rank: int, frame: pl.DataFrame) -> None:
        """One part; see `PartWriter`."""
        number = self._counts[table, rank]
        self._counts[table, rank] += 1
        buffer = io.BytesIO()  # through memory: polars takes no path that is not UTF-8
        # Level 1: a trace is read once or twice, and packing it harder costs more than that.
        complete(table, frame).write_parquet(
            buffer, compression="zstd", compression_level=1, statistics=False
        )
        data = buffer.getbuffer()
        facts = TableFacts(rows=frame.height, size_bytes=len(data), crc32=zlib.crc32(data))
        part = WrittenPart(self._source, table, rank, number, facts)
        write_file(self._folder / part.draft_name, data)
        if "end_ns" in frame.columns and frame.height:
            first, last = frame["start_ns"].min(), frame["end_ns"].max()
            self.bounds_ns += [int(first), int(last)]  # type: ignore[arg-type]
        self.parts.append(part)


def part_stem(table: str, rank: int, number: int) -> str:
    """A part in a finished run, and its key in the manifest."""
    return f"{table}-{rank}-{number}"


def is_trace(run_dir: Path) -> bool:
    """Whether this folder is an imported run."""
    try:
        return read_manifest(run_dir).kind == "trace"
    except NotARecordingError:
        return False


def load_trace(run_dir: Path) -> Trace:
    """Open an imported run; tables are read when they are asked for."""
    manifest = read_manifest(run_dir)
    if manifest.kind != "trace":
        raise NotARecordingError(
            f"{run_dir} was recorded, not imported. Nothing was read. `fuelline diagnose` reads it."
        )
    tables = manifest.tables

    def load(name: str, rank: int, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        for number in count():
            stem = part_stem(name, rank, number)
            if stem not in tables:
                return
            frame = read_table(run_dir, stem, tables[stem], columns)
            if frame.height:
                yield _checked(frame, name, columns, run_dir / stem)

    return Trace(run=manifest.run, facts=manifest.trace or TraceFacts(), load=load)


def _checked(frame: pl.DataFrame, table: str, wanted: Sequence[str], path: Path) -> pl.DataFrame:
    """Refuse what no importer writes.

    Other types, nothing where something is always said, times so far away that sums overflow,
    numbers of names beyond all names.
    """
    kinds = TRACE_TABLES[table]
    lacks = [name for name in _ALWAYS_THERE.get(table, ()) if name in wanted]
    lacks = [name for name in lacks if name not in frame.columns]
    if lacks:
        raise DamagedRecordingError(f"{path}{SUFFIX} lacks the column {lacks[0]}. {DAMAGE}")
    try:
        frame = frame.select(pl.col(name).cast(kinds[name]) for name in frame.columns)
        checks = [pl.col(name).is_null() for name in _ALWAYS_SAID if name in frame.columns]
        times = [pl.col(name) for name in _TIMES if name in frame.columns]
        checks += [~time.is_between(-MOST_NS, MOST_NS) for time in times]
        if {"start_ns", "end_ns"} <= set(frame.columns):
            checks.append(pl.col("end_ns") < pl.col("start_ns"))
        if frame.schema.get("name") == pl.UInt32:
            checks.append(pl.col("name") >= _MOST_NAMES)
        if table in _MOST_KINDS and "kind" in frame.columns:
            checks.append(pl.col("kind") > _MOST_KINDS[table])
        found = frame.filter(pl.any_horizontal(checks)).height if checks else 0
    except (*ERRORS, KeyError) as error:
        raise DamagedRecordingError(f"{path}{SUFFIX}: {brief(error)}. {DAMAGE}") from None
    if found:
        raise DamagedRecordingError(
            f"{path}{SUFFIX} has {found} rows that no importer writes: values are missing or out "
            f"of range. {DAMAGE}"
        )
    return frame


_TIMES = ("start_ns", "end_ns", "at_ns")
_ALWAYS_SAID = (*_TIMES, "name", "text", "kind")
_ALWAYS_THERE = {
    "device": ("start_ns", "end_ns", "name", "kind"),
    "host": ("start_ns", "end_ns", "name", "kind"),
    "names": ("name", "text"),
    "steps": ("start_ns", "end_ns"),
    "counters": ("at_ns", "name"),
}
_MOST_KINDS = {"device": int(max(DeviceKind)), "host": int(max(HostKind))}
_MOST_NAMES = 1 << 22
"""Of one rank; they are numbered from zero."""
