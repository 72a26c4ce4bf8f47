"""Events of pieces in, parts of tables out: columns wait until enough of them have come together.

Rows keep the order of the file within their sort, whoever read them: what the scanner did not take
is put back in its place.

Also here: events that are more than a row of the host's: the profiler's steps, and operators with
work.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.ingest.kineto.device import DeviceColumns
from fuelline.ingest.kineto.events import decode_op_args
from fuelline.ingest.kineto.host import HostColumns, external
from fuelline.ingest.kineto.numbers import exact_starts, floats, ints, moments
from fuelline.ingest.kineto.shapes import NO_WORK, count_work
from fuelline.ingest.kineto.sorts import SORTS
from fuelline.schema.run.trace import CopyDirection, DeviceKind
from fuelline.timeline.trace import complete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from fuelline.ingest.importer import PartWriter
    from fuelline.ingest.kineto.decode import Batch
    from fuelline.ingest.kineto.events import Args, Number
    from fuelline.ingest.kineto.scan import Scan
    from fuelline.ingest.kineto.scan_state import ScanState
    from fuelline.ingest.kineto.shapes import Work
    from fuelline.ingest.kineto.sorts import EventSort
    from fuelline.ingest.kineto.split import Piece


_PART_ROWS = 100_000
"""Rows of a table that are held before they are written: some 5 MB."""
_ROWS = {"device": 4096, "host": 16384}
"""Events that become columns at a time: few enough for their Python objects to stay near the
processor, and for their memory to be used again instead of given back (bench/trace_import.py)."""
_MARKS = len(SORTS)
"""The scanner's count behind those of the sorts."""
_DIRECTIONS = (
    ("HtoD", CopyDirection.HOST_TO_DEVICE),
    ("DtoH", CopyDirection.DEVICE_TO_HOST),
    ("DtoD", CopyDirection.DEVICE_TO_DEVICE),
    ("PtoP", CopyDirection.PEER),
)


class TraceTables:
    """Columns that wait to be written."""

    def __init__(self, rank: int, writer: PartWriter, book: ScanState, scan: Scan | None) -> None:
        self._rank = rank
        self._writer = writer
        self._book = book
        self._scan = scan
        self._marks = Marks(book)
        self._columns: dict[EventSort, DeviceColumns | HostColumns] = {
            sort: DeviceColumns(book)
            if sort.table == "device"
            else HostColumns(book, is_linked=sort.is_linked)
            for sort in SORTS
        }
        self._is_exact = False
        self._since: dict[EventSort, int] = {}
        """Where the events that wait begin in the file, by sort."""
        self.since = 0
        """Where those began that became columns last."""
        self._waiting: dict[str, list[pl.DataFrame]] = {}

    def add(self, batch: Batch, piece: Piece) -> None:
        """Events of a piece; they wait until columns of them are worth making."""
        if batch.is_exact != self._is_exact:
            self._bend_all()
            self._is_exact = batch.is_exact
        if batch.is_scanned and self._scan is not None:
            self._scan.keep()
        for sort, events in batch.complete.items():
            self._since.setdefault(sort, piece.start)
            places = batch.places.get(sort) or [piece.start] * len(events)
            watched = self._columns[sort].add(events, places, exact=batch.is_exact)
            if watched:
                self._marks.add(watched, exact=batch.is_exact)
        counts = self._counts()
        for sort, count in zip(SORTS, counts, strict=False):
            if count >= _ROWS[sort.table]:
                self._bend(sort)
        if counts[_MARKS] >= _ROWS["device"]:
            self._bend_marks()

    def finish(self) -> None:
        """Write what waits."""
        self._bend_all()
        for table in list(self._waiting):
            self._write(table)
        self._writer.add("names", self._rank, self._book.names.frame())

    def _counts(self) -> list[int]:
        """Rows of each of SORTS that wait, and those of marks."""
        read = [*map(len, self._columns.values()), len(self._marks)]
        return list(map(add, read, self._scan.counts())) if self._scan else read

    def _bend_all(self) -> None:
        counts = self._counts()
        for sort, count in zip(SORTS, counts, strict=False):
            if count:
                self._bend(sort)
        if counts[_MARKS]:
            self._bend_marks()

    def _bend(self, sort: EventSort) -> None:
        """Columns of one sort."""
        self.since = self._since.pop(sort, self.since)
        parts = [self._scan.take(sort)] if self._scan else []
        if len(self._columns[sort]):
            parts.append(self._columns[sort].take(exact=self._is_exact))
        frame = pl.concat(parts).sort("at", maintain_order=True) if len(parts) > 1 else parts[0]
        columns: list[pl.Expr | pl.Series] = [pl.lit(sort.kind, pl.UInt8).alias("kind")]
        if sort.table == "device":
            columns.append(pl.col("occupancy") / 100)
        if sort.kind == DeviceKind.COPY and sort.table == "device":
            columns.append(self._directions(frame["name"]))
        self._hold(sort.table, complete(sort.table, frame.with_columns(columns)))

    def _directions(self, names: pl.Series) -> pl.Series:
        texts = self._book.names.texts
        ways = {name: _direction(texts[name]) for name in names.unique()}
        found: pl.Series = names.replace_strict(ways, return_dtype=pl.UInt8)
        return found.alias("direction")

    def _bend_marks(self) -> None:
        parts = [self._marks.complete(*self._scan.take_marks())] if self._scan else []
        if len(self._marks):
            parts.append(self._marks.take(exact=self._is_exact))
        for table, frame in self._marks.split(pl.concat(parts)).items():
            if frame.height:
                self._hold(table, complete(table, frame))

    def _hold(self, table: str, frame: pl.DataFrame) -> None:
        waiting = self._waiting.setdefault(table, [])
        waiting.append(frame)
        if sum(each.height for each in waiting) >= _PART_ROWS:
            self._write(table)

    def _write(self, table: str) -> None:
        waiting = self._waiting.pop(table, [])
        if waiting:
            self._writer.add(table, self._rank, pl.concat(waiting))


def _direction(name: str) -> int:
    return next((int(way) for word, way in _DIRECTIONS if word in name), int(CopyDirection.UNKNOWN))


class Marks:
    """Steps and operators of a file that wait to become rows of tables of their own."""

    def __init__(self, book: ScanState) -> None:
        self._book = book
        self._clear()

    def _clear(self) -> None:
        self._starts: list[Any] = []
        self._lengths: list[Number] = []
        self._names: list[int] = []
        self._works: list[tuple[Number, Work]] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, events: Sequence[Any], *, exact: bool) -> None:
        """Take over events whose names are watched: operators without work are none of ours."""
        names = self._book.names
        marked = [
            (event, number)
            for event, number in zip(events, names.find([e.name for e in events]), strict=True)
            if number in names.steps or number in names.counted
        ]
        starts = [event.ts for event, _ in marked]
        self._starts += exact_starts(starts) if exact else starts
        self._lengths += [event.dur for event, _ in marked]
        self._names += [number for _, number in marked]
        self._works += [self._work(number, event.args) for event, number in marked]

    def _work(self, name: int, args: Raw | Args) -> tuple[Number, Work]:
        """The operator's own number, and what it does."""
        if name not in self._book.names.counted:
            return None, NO_WORK
        known = decode_op_args(args)
        return external([known])[0], count_work(self._book.names.texts[name], known)

    def take(self, *, exact: bool) -> pl.DataFrame:
        """What has come together; nothing is left afterwards."""
        found = moments(self._starts, self._lengths, exact=exact)
        names = pl.Series(values=self._names, dtype=pl.Int64)
        frame = pl.DataFrame({**found.columns, "name": names, **_columns(self._works)})
        self._clear()
        return frame

    def complete(self, rows: pl.DataFrame, args: Sequence[Raw]) -> pl.DataFrame:
        """The same of rows that have their times and names already."""
        works = [self._work(name, each) for name, each in zip(rows["name"], args, strict=True)]
        return rows.select("start_ns", "end_ns", "name").with_columns(**_columns(works))

    def split(self, frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """By table, in the order of time."""
        names = self._book.names
        step = [names.steps.get(name) for name in frame["name"]]
        is_op = [name in names.counted for name in frame["name"]]
        steps = frame.with_columns(pl.Series("step", step, dtype=pl.Int64)).drop_nulls("step")
        ops = frame.filter(pl.Series(is_op, dtype=pl.Boolean))
        by_work = ("start_ns", "external", "flops", "least_bytes", "dtype")
        return {"steps": steps.sort("start_ns", "step", "end_ns"), "ops": ops.sort(by_work)}


def _columns(works: Sequence[tuple[Number, Work]]) -> dict[str, pl.Series]:
    return {
        "external": ints([own for own, _ in works]),
        "flops": floats([work[0] for _, work in works]),
        "least_bytes": floats([work[1] for _, work in works]),
        "dtype": pl.Series(values=[work[2] for _, work in works], dtype=pl.String),
    }
