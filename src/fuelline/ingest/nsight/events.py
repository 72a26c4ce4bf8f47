"""Rows of an Nsight export as frames of our columns: numbers typed, names cleaned.

An operator of PyTorch (`emit_nvtx`) is an NVTX range whose text says so; an entry point's version
is cut off its name; a copy is named after where it goes.

Also here: counters that Nsight sampled from the chip (`--gpu-metrics-devices`), where a report has
them.

    GPU_METRICS              timestamp  typeId  metricId  value     (percent, whole numbers)
    TARGET_INFO_GPU_METRICS  typeId  metricId  metricName

The low byte of `typeId` is the device. Names vary a little from version to version, so that they
are recognised by what they begin with. Only those that are rungs of the ladder are kept, under the
names that counters of DCGM have.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.ingest.name_book import MOST_CHARACTERS
from fuelline.ingest.nsight.tables import COPY_DIRECTIONS, COPY_NAMES, COPY_TABLE
from fuelline.schema.run.trace import CopyDirection, HostKind
from fuelline.timeline.tables import MOST_NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fuelline.ingest.name_book import NameBook
    from fuelline.ingest.nsight.database import Database
    from fuelline.ingest.nsight.tables import Source


PID_BITS = 24
"""A global thread id is a machine, a pid and a thread of this many bits each (SQLite examples in
the user guide: `globalTid / 0x1000000 % 0x1000000` is the pid)."""
_VERSION = re.compile(r"(_ptsz|_ptds)?_v\d+$")
"""`cudaMemcpyAsync_ptsz_v7000`."""
_OPERATOR = re.compile(r", (?:op_id|seq|stashed seq) = ")
"""`aten::view, op_id = 314290`: torch.autograd.profiler.emit_nvtx. The number would give each
range a different name."""
_FIRST_NUMBER = 4
"""Place of our first number in a row of `Database.parts`."""


class Events:
    """Frames of one export's tables."""

    def __init__(self, database: Database, names: NameBook) -> None:
        self._database = database
        self._names = names
        self._strings = dict(
            database.select("SELECT id, value FROM StringIds", "StringIds")
            if {"id", "value"} <= database.columns("StringIds")
            else ()
        )
        self._known: dict[tuple[str, Any], tuple[int, int]] = {}

    def frames(self, source: Source) -> Iterator[pl.DataFrame]:
        """All rows of a table, in parts, with `owner` (machine and pid) and `thread` beside."""
        for rows in self._database.parts(source):
            columns = list(zip(*rows, strict=True))
            frame = _numbers(source, columns)
            if source.table == COPY_TABLE:
                yield self._name_copies(frame)
            else:
                yield self._name(source, frame, columns[_FIRST_NUMBER + len(source.columns) : -1])

    def _name(
        self, source: Source, frame: pl.DataFrame, columns: list[tuple[Any, ...]]
    ) -> pl.DataFrame:
        cells = zip(*columns, strict=True) if columns else ((None,) for _ in range(frame.height))
        described = [self._describe(source, cell) for cell in cells]
        return frame.with_columns(
            name=pl.Series([number for number, _ in described], dtype=pl.UInt32),
            kind=pl.Series([kind for _, kind in described], dtype=pl.UInt8),
        )

    def _describe(self, source: Source, cells: Sequence[Any]) -> tuple[int, int]:
        """Number and kind of the first name that is there."""
        cell = next((cell for cell in cells if cell is not None), None)
        key = (source.table, cell)
        found = self._known.get(key)
        if found is None:
            text = cell if isinstance(cell, str) else self._strings.get(cell)
            text, kind = _interpret(source, str(text or source.fallback))
            found = self._names.number(text), kind
            if not isinstance(cell, str):  # texts of ranges may all differ; numbers repeat
                self._known[key] = found
        return found

    def _name_copies(self, frame: pl.DataFrame) -> pl.DataFrame:
        directions = pl.col("copy_kind").replace_strict(
            COPY_DIRECTIONS, default=int(CopyDirection.UNKNOWN), return_dtype=pl.UInt8
        )
        numbers = {int(way): self._names.number(text) for way, text in COPY_NAMES.items()}
        return frame.with_columns(direction=directions).with_columns(
            name=pl.col("direction").replace_strict(numbers, return_dtype=pl.UInt32)
        )


def _numbers(source: Source, columns: list[tuple[Any, ...]]) -> pl.DataFrame:
    owner = pl.Series(columns[3], dtype=pl.Int64)
    numbers = zip(source.columns, columns[_FIRST_NUMBER:], strict=False)
    return pl.DataFrame(
        {
            "start_ns": pl.Series(columns[1], dtype=pl.Int64),
            "end_ns": pl.Series(columns[2], dtype=pl.Int64),
            "owner": owner // (1 << PID_BITS),
            "thread": owner % (1 << PID_BITS),
            **{ours: pl.Series(values, dtype=pl.Int64) for ours, values in numbers},
        }
    ).with_columns(kind=pl.lit(source.kind, pl.UInt8))


def _interpret(source: Source, text: str) -> tuple[str, int]:
    """A name without its numbering, and the kind that it stands for; no real one is so long."""
    if len(text) > MOST_CHARACTERS:
        return text, source.kind
    if source.kind == HostKind.RUNTIME:
        return _VERSION.sub("", text), source.kind
    if source.kind == HostKind.ANNOTATION and _OPERATOR.search(text):
        return _OPERATOR.split(text, maxsplit=1)[0], HostKind.OP
    return text, source.kind


VALUES, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
_KEPT = (
    ("sms active", "gpm.sm_frac"),
    ("sm active", "gpm.sm_frac"),
    ("tensor active", "gpm.tensor_frac"),
    ("sm instructions/tensor active", "gpm.tensor_frac"),
)
_NEEDED = {VALUES: {"timestamp", "typeId", "metricId", "value"}}
_NEEDED[NAMES] = {"typeId", "metricId", "metricName"}
_PART_ROWS = 100_000
_PERCENT = 100.0


def read_counters(database: Database) -> Iterator[pl.DataFrame]:
    """Parts of the `counters` table; none if nothing was sampled."""
    if any(not columns <= database.columns(table) for table, columns in _NEEDED.items()):
        return
    known = _find_names(database)
    query = f"SELECT timestamp, typeId, metricId, value FROM {VALUES}"
    rows = database.select(query, VALUES)
    while part := list(islice(rows, _PART_ROWS)):
        kept = [
            (type_id & 0xFF, at_ns, known[type_id, metric], value / _PERCENT)
            for at_ns, type_id, metric, value in part
            if (type_id, metric) in known and _is_sound(at_ns, value)
        ]
        if kept:
            columns = {"device": pl.Int32, "at_ns": pl.Int64, "name": pl.String}
            yield pl.DataFrame(kept, schema={**columns, "value": pl.Float64}, orient="row")


def _find_names(database: Database) -> dict[tuple[int, int], str]:
    rows = database.select(f"SELECT typeId, metricId, metricName FROM {NAMES}", NAMES)
    return {
        (type_id, metric): ours
        for type_id, metric, name in rows
        for begins, ours in _KEPT
        if isinstance(type_id, int)
        and isinstance(metric, int)
        and str(name).lower().startswith(begins)
    }


def _is_sound(at_ns: object, value: object) -> bool:
    is_time = isinstance(at_ns, int) and abs(at_ns) < MOST_NS
    return is_time and isinstance(value, (int, float)) and 0 <= value <= _PERCENT
