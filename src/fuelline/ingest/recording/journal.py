"""The observer's journal as tables, a piece at a time: a day of it has 300 MB, a week 2 GB.

What comes out does not grow with the journal (`BoundedTable`), except what is written once: places,
processes, limits, source lines.
"""

from __future__ import annotations

import contextlib
import gc
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from fuelline.ingest.recording.thinning import BoundedTable
from fuelline.schema.files import open_below, refuse_holes
from fuelline.schema.run import samples
from fuelline.schema.run.journal import decode_pieces
from fuelline.timeline.tables import TABLES, empty_table, is_possible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

PIECE_BYTES = 1024 * 1024
"""Read at a time: 30,000 rows, which take 10 MB as Python objects."""
MOST_BLINDS = 1_000
"""That a run's files report, each counted once: a job of a thousand ranks reports some dozens. 8 MB
of a journal can hold 200,000."""
_ROW_TABLES: dict[type[msgspec.Struct], str] = {
    samples.ThreadState: "states",
    samples.Place: "places",
    samples.ThreadClock: "clocks",
    samples.ProcessClock: "processes",
    samples.ProcessSeen: "seen",
    samples.StackSample: "stacks",
    samples.OtherProcess: "others",
    samples.DeviceProcess: "device_processes",
}
_TABLES = (*_ROW_TABLES.values(), "host", "devices")


@dataclass
class Journal:
    """What could be read of a journal."""

    tables: dict[str, BoundedTable] = field(
        default_factory=lambda: {name: BoundedTable(name) for name in _TABLES}
    )
    has_rows: bool = False
    problem: str | None = None
    """What kept rows from being read; None if nothing did."""
    damaged: int = 0
    """Frames whose checksum is wrong."""
    impossible: dict[str, int] = field(default_factory=dict)
    """Rows that the observer cannot have written, by table."""
    lines: dict[str, str] = field(default_factory=dict)
    """`file:line` to the text of that line."""
    limits: list[samples.Limits] = field(default_factory=list)
    devices: dict[str, samples.DeviceSeen] = field(default_factory=dict)
    """The last word on each."""
    blinds: dict[samples.Blind, None] = field(default_factory=dict)
    """Each once: their writers do not know what was already written."""
    blinds_left_out: int = 0
    """How many came when there were `MOST_BLINDS` already."""

    def add(self, rows: Sequence[samples.Row]) -> None:
        """Take more rows."""
        self.has_rows |= bool(rows)
        by_kind: dict[type[msgspec.Struct], list[Any]] = {}
        for row in rows:
            by_kind.setdefault(type(row), []).append(row)
        for kind, found in by_kind.items():
            if kind in _ROW_TABLES:
                cells = [msgspec.structs.astuple(row) for row in found]
                self._add(_ROW_TABLES[kind], cells)
        self._add("host", _host_cells(by_kind.get(samples.HostSample, [])))
        self._add("devices", _device_cells(by_kind.get(samples.DeviceSample, [])))
        for line in by_kind.get(samples.SourceLine, ()):
            self.lines[f"{line.file}:{line.line}"] = line.text
        self.limits += by_kind.get(samples.Limits, ())
        self.devices |= {row.device: row for row in by_kind.get(samples.DeviceSeen, ())}
        for blind in by_kind.get(samples.Blind, ()):
            if len(self.blinds) < MOST_BLINDS:
                self.blinds[blind] = None
            else:
                self.blinds_left_out += blind not in self.blinds

    def _add(self, name: str, cells: list[tuple[Any, ...]]) -> None:
        if not cells:
            return
        frame = _columns(name, cells)
        kept = frame.filter(is_possible(frame))
        if kept.height < frame.height:
            lost = frame.height - kept.height
            self.impossible[name] = self.impossible.get(name, 0) + lost
        self.tables[name].add(kept)


def read_journal(run_dir: Path) -> Journal:
    """All of it that can be read.

    A last frame that was cut off is no damage: the observer was killed.
    """
    journal = Journal()
    try:
        with os.fdopen(open_below(run_dir, samples.JOURNAL_NAME), "rb") as file:
            refuse_holes(file, samples.JOURNAL_NAME)
            with _no_collection():
                for decoded in decode_pieces(_pieces(file), os.fstat(file.fileno()).st_size):
                    journal.add(decoded.rows)
                    journal.damaged += decoded.damaged
    except FileNotFoundError:
        return journal
    except OSError as error:
        journal.problem = f"{samples.JOURNAL_NAME} cannot be read ({error.strerror})"
    if journal.damaged:
        journal.problem = f"{samples.JOURNAL_NAME} is damaged"
    return journal


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Rows have no cycles; to look for some among millions takes a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


def _host_cells(rows: list[samples.HostSample]) -> list[tuple[Any, ...]]:
    return [(row.at_ns, name, float(value)) for row in rows for name, value in row.values.items()]


def _device_cells(rows: list[samples.DeviceSample]) -> list[tuple[Any, ...]]:
    return [
        (row.at_ns, row.device, name, float(value))
        for row in rows
        for name, value in row.values.items()
    ]


def _columns(name: str, cells: list[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows to columns; handing polars whole columns is ten times as fast as rows."""
    if not cells:
        return empty_table(name)
    kinds = TABLES[name].items()
    columns = zip(*cells, strict=True)
    return pl.DataFrame(
        [
            _series(column, values, kind)
            for (column, kind), values in zip(kinds, columns, strict=True)
        ]
    )


def _series(name: str, values: tuple[Any, ...], kind: pl.DataType) -> pl.Series:
    """A column; what does not fit its type is null."""
    try:
        return pl.Series(name, values, kind)
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        return pl.Series(name, [_fitting(value) for value in values], kind, strict=False)


def _fitting(value: Any) -> Any:
    """Polars fails over whole numbers of more than 64 bits, strict or not."""
    return None if isinstance(value, int) and abs(value) >= 1 << 63 else value
