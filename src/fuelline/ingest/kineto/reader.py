"""The importer of Kineto's JSON: pieces of the file in, parts of tables out, in bounded memory.

Each piece is decoded, bent into columns and forgotten. Columns are written when enough of them have
come together. What a file says about itself may stand before or behind its events.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from fuelline.ingest.importer import Imported
from fuelline.ingest.kineto.columns import (
    STEP_MARK,
    Book,
    HostColumns,
    device_frame,
    external,
)
from fuelline.ingest.kineto.decode import Decoder, find_sort
from fuelline.ingest.kineto.events import decode_op_args, mend
from fuelline.ingest.kineto.facts import describe
from fuelline.ingest.kineto.numbers import OddNumberError, ints, moments, settle
from fuelline.ingest.kineto.pairs import Pairs
from fuelline.ingest.kineto.shapes import count_work
from fuelline.ingest.kineto.split import Piece, Splitter, find_last_event_end
from fuelline.ingest.unpack import TruncatedError, read_blocks
from fuelline.schema.errors import InputError
from fuelline.schema.trace import Quality, SourceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from fuelline.ingest.importer import PartWriter
    from fuelline.ingest.kineto.decode import Batch, Sort

_PART_ROWS = 100_000
"""Rows of a table that are held before they are written: some 5 MB."""
_DEVICE_ROWS, _HOST_ROWS = 1024, 16384
"""Events that become columns at a time: few enough for their Python objects to stay near the
processor, and for their memory to be used again instead of given back (bench/trace_import.py)."""
_TRAILING = "trailing characters (byte "
_TRUNCATED = "Input data was truncated"


class Kineto:
    """Kineto and Chrome traces."""

    format = "kineto"

    def recognises(self, head: bytes) -> bool:
        """An object with `traceEvents`, or an array of objects with a phase."""
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if text.startswith(b"{"):
            return b'"traceEvents"' in head or b'"schemaVersion"' in head
        return text.startswith(b"[") and b'"ph"' in head

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """All of a file; see `Importer`."""
        was_on = gc.isenabled()
        gc.disable()  # structs cannot form cycles, and there are millions of them
        try:
            return _Reading(path, rank, writer, partial=partial, advance=advance).run()
        finally:
            if was_on:
                gc.enable()


class _Reading:
    """One file on its way into tables."""

    def __init__(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> None:
        self.path = path
        self.rank = rank
        self.partial = partial
        self.tables = _Tables(rank, writer)
        self.splitter = Splitter(path, read_blocks(path, advance))
        self.decoder = Decoder()
        self.quality: list[Quality] = []
        self.pairs = Pairs()
        self.events = 0
        """Of all phases, so far."""
        self.end = 0
        """Of what was kept so far, in the unpacked text."""

    def run(self) -> Imported:
        header = self._object(self.splitter.header(), 0)
        footer: dict[str, Any] = {}
        try:
            footer = self._read_events()
        except TruncatedError:
            if not self.partial:
                raise
            self._keep_rest()
        self._finish()
        if not self.events:
            raise InputError(
                f"{self.path} holds no event. There is nothing to import. Record it again, with "
                "the profiler's activities switched on."
            )
        return self._imported(header | footer)

    def _read_events(self) -> dict[str, Any]:
        """All pieces but the rest, which holds the end of the array; the footer comes back."""
        while (piece := self.splitter.next_piece()) is not None:
            end = self._read_piece(piece)
            if end is not None:
                return self._footer(end)
        rest = self.splitter.rest()
        end = self._find_end(rest)
        if end is None:
            if not self.splitter.is_array or not self._ends_well(rest):
                raise self.splitter.cut_short()
            self._keep(self._decode(Piece(rest.text.rstrip().rstrip(b","), rest.start)), rest)
            return {}
        self._keep(self._decode(Piece(rest.text[: end - 1], rest.start)), rest)
        return self._object(self._as_object(rest.text[end:]), rest.start + end)

    def _read_piece(self, piece: Piece) -> int | None:
        """Take a piece; if the array ends within it, where that is in the piece."""
        try:
            events = self._decode(piece)
        except msgspec.DecodeError as error:
            end = _trailing(error)
            if end is not None:
                inside = Piece(piece.text[: end - 2].rstrip()[:-1], piece.start)
                self._keep(self._decode_or_fail(inside), inside)
                return len(inside.text)
            again = self.splitter.recut(piece)
            if again is None:
                raise self._malformed(piece, error) from None
            piece = again
            events = self._decode_or_fail(piece)
        self._keep(events, piece)
        self.splitter.take(piece)
        return None

    def _footer(self, end: int) -> dict[str, Any]:
        """What follows an array that ended at this place of the buffer."""
        rest = self.splitter.rest()
        close = rest.text.index(b"]", end) + 1
        return self._object(self._as_object(rest.text[close:]), rest.start + close)

    def _find_end(self, rest: Piece) -> int | None:
        """Behind the bracket that ends the array; None if the text ends before it does."""
        try:
            self._try(b"[" + rest.text, rest)
        except msgspec.DecodeError as error:
            end = _trailing(error)
            if end is None:
                if str(error) == _TRUNCATED:
                    return None
                raise self._malformed(rest, error) from None
            return len(rest.text[: end - 2].rstrip())
        return len(rest.text.rstrip())

    def _ends_well(self, rest: Piece) -> bool:
        """A bare array may lack its closing bracket, but not half an event."""
        text = rest.text.rstrip().rstrip(b",")
        return find_last_event_end(text) == len(text)

    def _keep_rest(self) -> None:
        """The whole events of a file that was cut short."""
        rest = Piece(self.splitter.left, self.splitter.start)
        whole = Piece(rest.text[: find_last_event_end(rest.text)], rest.start)
        self._keep(self._decode_or_fail(whole), whole)
        end = rest.start + len(rest.text)
        self.quality.append(
            Quality(
                code="truncated",
                problem=f"{self.path.name} was cut short at byte {end}; what follows is not there",
                forbids="totals over the run, the last step, and comparing with complete traces",
            )
        )

    def _decode_or_fail(self, piece: Piece) -> Batch:
        try:
            return self._decode(piece)
        except msgspec.DecodeError as error:
            raise self._malformed(piece, error) from None

    def _decode(self, piece: Piece) -> Batch:
        return self._try(b"".join((b"[", piece.text, b"]")), piece)

    def _try(self, text: bytes, piece: Piece) -> Batch:
        """As it is, else with what JSON does not know mended."""
        try:
            return self.decoder.decode(text)
        except UnicodeDecodeError:
            text = mend(text)
        except msgspec.DecodeError as error:
            mended = mend(text)
            if mended == text or _trailing(error) is not None or str(error) == _TRUNCATED:
                raise
            text = mended
        except RecursionError:
            raise self._too_deep(piece) from None
        try:
            return self.decoder.decode(text)
        except RecursionError:
            raise self._too_deep(piece) from None

    def _keep(self, batch: Batch, piece: Piece) -> None:
        self.end = piece.start + len(piece.text)
        self.events += batch.events
        try:
            for event in self.pairs.join(batch.halves):
                batch.complete.setdefault(find_sort(event.cat), []).append(event)
            self.tables.add(batch.complete, piece.start)
        except OddNumberError as odd:
            raise self._odd(odd) from None

    def _finish(self) -> None:
        try:
            self.tables.finish()
        except OddNumberError as odd:
            raise self._odd(odd) from None

    def _odd(self, odd: OddNumberError) -> InputError:
        return InputError(
            f"{self.path}: an event between byte {self.tables.since} and byte {self.end} cannot be "
            f"read: {odd}. Nothing was imported. Record the trace again, or repair that event."
        )

    def _as_object(self, tail: bytes) -> bytes:
        text = tail.strip()
        if self.splitter.is_array:
            return text or b"{}"
        return b"{" + text.removeprefix(b",")

    def _object(self, text: bytes, start: int) -> dict[str, Any]:
        """Header or footer."""
        try:
            try:
                return msgspec.json.decode(text, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError):
                return msgspec.json.decode(mend(text), type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            if str(error) == _TRUNCATED:
                raise self.splitter.cut_short() from None
            raise self._malformed(Piece(text, start), error) from None

    def _malformed(self, piece: Piece, error: Exception) -> InputError:
        place = piece.start + max(0, _byte_of(error) - 1)
        return InputError(
            f"{self.path}: not a trace at byte {place} ({error}). Nothing was imported. Copy the "
            "file again, or record it again."
        )

    def _too_deep(self, piece: Piece) -> InputError:
        return InputError(
            f"{self.path}: something after byte {piece.start} is nested too deeply for a trace. "
            "Nothing was imported. Record the trace again."
        )

    def _imported(self, said: dict[str, Any]) -> Imported:
        facts = describe(said, self.rank, self.path.name)
        self._doubt()
        return Imported(
            source=SourceFacts(
                file=self.path.name,
                format="kineto",
                size_bytes=self.path.stat().st_size,
                ranks=[facts.rank],
                events=self.events,
            ),
            ranks=[facts],
            quality=self.quality,
        )

    def _doubt(self) -> None:
        """State what the events themselves show to be wrong."""
        self.quality += self.pairs.judge()
        negative = self.tables.negative
        if negative:
            self.quality.append(
                Quality(
                    code="negative",
                    problem=f"{negative} events end before they start; they count as empty",
                    forbids="durations of single events where the profiler's clocks disagree",
                )
            )


class _Tables:
    """Columns that wait to be written."""

    def __init__(self, rank: int, writer: PartWriter) -> None:
        self._rank = rank
        self._writer = writer
        self._book = Book()
        self.negative = 0
        """Events that end before they start."""
        self._device: dict[Sort, list[Any]] = {}
        self._host: dict[Sort, HostColumns] = {}
        self._since: dict[Sort, int] = {}
        """Where the events that wait begin in the file, by sort."""
        self.since = 0
        """Where those began that became columns last."""
        self._counted: list[Any] = []
        """Operators whose work is to be counted."""
        self._waiting: dict[str, list[pl.DataFrame]] = {}

    def add(self, complete: Mapping[Sort, Sequence[Any]], start: int) -> None:
        """Events of a piece at this byte; they wait until columns of them are worth making."""
        for sort, events in complete.items():
            self._since.setdefault(sort, start)
            if sort.table == "device":
                self._add_device(sort, events)
            else:
                self._add_host(sort, events)

    def finish(self) -> None:
        """Write what waits."""
        for sort in list(self._device):
            self._bend_device(sort)
        for sort in self._host:
            self._bend_host(sort)
        for table in list(self._waiting):
            self._write(table)
        self._writer.add("names", self._rank, self._book.names.frame())

    def _add_device(self, sort: Sort, events: Sequence[Any]) -> None:
        waiting = self._device.setdefault(sort, [])
        waiting += events
        if len(waiting) >= _DEVICE_ROWS:
            self._bend_device(sort)

    def _bend_device(self, sort: Sort) -> None:
        self.since = self._since.pop(sort)
        self._hold("device", device_frame(self._device.pop(sort), sort.kind, self._book))

    def _add_host(self, sort: Sort, events: Sequence[Any]) -> None:
        columns = self._host.setdefault(sort, HostColumns(sort, self._book))
        steps = len(self._book.names.steps)
        counted = columns.add(events)
        if len(self._book.names.steps) > steps:
            self._hold_steps(events)
        self._counted += counted
        if len(columns) >= _HOST_ROWS:
            self._bend_host(sort)

    def _bend_host(self, sort: Sort) -> None:
        if sort in self._since:
            self.since = self._since.pop(sort)
            self._hold("host", self._host[sort].take())
        if self._counted:
            self._hold("ops", _work(self._counted))
            self._counted = []

    def _hold_steps(self, host: Sequence[Any]) -> None:
        """The profiler's marks are few: each has a name of its own."""
        names = self._book.names
        marks = [event for event in host if event.name.startswith(STEP_MARK)]
        times = moments([mark.ts for mark in marks], [mark.dur for mark in marks])
        numbers = [names.steps.get(name) for name in names.find([mark.name for mark in marks])]
        frame = pl.DataFrame({**times, "step": pl.Series(values=numbers, dtype=pl.Int64)})
        self._hold("steps", frame.drop_nulls("step"))

    def _hold(self, table: str, frame: pl.DataFrame) -> None:
        waiting = self._waiting.setdefault(table, [])
        waiting.append(frame)
        if sum(each.height for each in waiting) >= _PART_ROWS:
            self._write(table)

    def _write(self, table: str) -> None:
        waiting = self._waiting.pop(table, [])
        if waiting:
            frame = pl.concat(waiting)
            if "took_us" in frame.columns:
                frame, negative = settle(frame)
                self.negative += negative
            if table == "device":
                frame = frame.with_columns(pl.col("occupancy") / 100)
            self._writer.add(table, self._rank, frame)


def _work(counted: list[Any]) -> pl.DataFrame:
    """Columns of the `ops` table."""
    args = [decode_op_args(event.args) for event in counted]
    return pl.DataFrame(
        {
            **moments([event.ts for event in counted], [event.dur for event in counted]),
            "external": ints(external(args)),
            **count_work([event.name for event in counted], args),
        }
    )


def _trailing(error: Exception) -> int | None:
    """Where the decoder found more than the array, counted from 1; None if that is not it."""
    return _byte_of(error) if _TRAILING in str(error) else None


def _byte_of(error: Exception) -> int:
    _, _, after = str(error).partition("(byte ")
    digits = after.partition(")")[0]
    return int(digits) if digits.isdecimal() else 0
