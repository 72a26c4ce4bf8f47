"""Ascend's `trace_view.json`: Chrome's format with its own processes, one rank a file.

Tasks of "Ascend Hardware" and the collectives of "Communication" become device events; operators of
the framework and calls into CANN host events. A task names the call that launched it where calls
were recorded in full; elsewhere an arrow begins within the call.

The profiler keeps the rank's number beside the file, in `profiler_info_N.json`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.ascend.events import (
    AscendBatch,
    AscendDecoder,
    find_connection,
    find_device_kind,
    find_host_kind,
    find_step,
)
from fuelline.ingest.importer import Imported
from fuelline.ingest.kineto.reader import TraceReading
from fuelline.ingest.name_book import NameBook
from fuelline.ingest.spans import describe_insane, keep_sane, write
from fuelline.schema.run.trace import ChipFacts, HostKind, RankFacts, SourceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fuelline.ingest.ascend.events import AscendEvent
    from fuelline.ingest.importer import PartWriter
    from fuelline.ingest.kineto.decode import Batch
    from fuelline.ingest.kineto.split import Piece

_QUOTED_START = re.compile(rb'"ts"\s*:\s*"\d{6,}')
_OWN_WORDS = re.compile(rb'"Fwd thread id"|Ascend|CANN|"NPU"|aclnn|HCCL|"Task Type"|async_npu')
_INFO = re.compile(r"^profiler_info_(\d{1,6})\.json$")
_PART_ROWS = 100_000
_DEVICE = ("device", "stream", "start_ns", "end_ns", "name", "kind", "correlation")
_HOST = ("thread", "start_ns", "end_ns", "name", "kind", "correlation")


class Ascend:
    """The importer of Ascend's timelines."""

    format = "ascend"

    def recognises(self, head: bytes) -> bool:
        """Chrome's format with starts in quotes, and a word of its own."""
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        is_json = text[:1] in (b"[", b"{") and b'"ph"' in head
        return bool(is_json and _QUOTED_START.search(head) and _OWN_WORDS.search(head))

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """See `Importer`."""
        known = _find_rank(path)
        tables = AscendTables(rank if known is None else known, writer)
        dialect = (AscendDecoder(), tables)
        reading = TraceReading(
            path, tables.rank, writer, partial=partial, advance=advance, dialect=dialect
        )
        reading.read()
        return Imported(
            source=SourceFacts(
                file=path.name,
                format=Ascend.format,
                size_bytes=path.stat().st_size,
                ranks=[tables.rank],
                events=reading.events,
            ),
            ranks=[
                RankFacts(
                    rank=tables.rank,
                    chips=[ChipFacts(device=each, name="Ascend NPU") for each in tables.devices],
                    origin_ns=tables.origin_ns,
                    is_rank_known=known is not None,
                )
            ],
            quality=[*describe_insane(tables.insane), *reading.quality],
        )


def _find_rank(path: Path) -> int | None:
    """From the file that lies beside the folder of results, or in it."""
    for folder in (path.parent, path.parent.parent):
        for each in sorted(folder.glob("profiler_info_*.json")):
            found = _INFO.match(each.name)
            if found:
                return int(found[1])
    return None


class AscendTables:
    """Rows that wait to be written; calls wait for the arrows that begin in them."""

    def __init__(self, rank: int, writer: PartWriter) -> None:
        self.rank = rank
        self.origin_ns = 0
        self.insane = 0
        self.since = 0
        self._writer = writer
        self._names = NameBook()
        self._devices: dict[object, int] = {}
        """Processes of the hardware to devices, in the order of appearance."""
        self._rows: dict[str, list[tuple[int | None, ...]]] = {"device": [], "host": []}
        self._calls: list[tuple[int, int, int, int]] = []
        self._arrows: list[tuple[int, int, int]] = []
        self._steps: list[tuple[int, int, int]] = []

    @property
    def devices(self) -> list[int]:
        """Those that did something."""
        return list(self._devices.values())

    def add(self, batch: Batch, piece: Piece) -> None:
        """Events of a piece."""
        if not isinstance(batch, AscendBatch):
            raise TypeError(type(batch))
        for event in batch.rows:
            if event.ph == "X":
                self._take(event)
            elif event.ph == "s" and (found := find_connection(event)) is not None:
                self._arrows.append((_number(event.tid), self._since_origin(event.start_ns), found))
        self.since = piece.start
        for table, rows in self._rows.items():
            if len(rows) >= _PART_ROWS:
                self._write(table)

    def finish(self) -> None:
        """Write what waits."""
        self._join_arrows()
        for table in self._rows:
            self._write(table)
        if self._steps:
            columns = ("step", "start_ns", "end_ns")
            write(self._writer, "steps", self.rank, _frame(columns, sorted(self._steps)))
        self._writer.add("names", self.rank, self._names.frame())

    def _take(self, event: AscendEvent) -> None:
        start, end = self._since_origin(event.start_ns), self._since_origin(event.end_ns)
        step = find_step(event)
        if step is not None:
            self._steps.append((step, start, end))
        kind = find_device_kind(event)
        name = self._names.number(event.name)
        found = find_connection(event)
        if kind is not None:
            device = self._devices.setdefault(event.pid, len(self._devices))
            row = (device, _number(event.tid), start, end, name, int(kind), found)
            self._rows["device"].append(row)
            return
        host = find_host_kind(event)
        if host is not None:
            thread = _number(event.tid)
            self._rows["host"].append((thread, start, end, name, int(host), found))
            if host == HostKind.RUNTIME:
                self._calls.append((thread, start, end, name))

    def _since_origin(self, at_ns: int) -> int:
        self.origin_ns = self.origin_ns or at_ns
        return at_ns - self.origin_ns

    def _join_arrows(self) -> None:
        """Where arrows begin, a call launched something: from there it is a call of its own."""
        calls = (
            _frame(("thread", "start_ns", "end_ns", "name"), self._calls)
            .rename({"start_ns": "since_ns"})
            .sort("since_ns")
        )
        by_thread = calls.partition_by("thread", as_dict=True, include_key=False)
        arrows = _frame(("thread", "start_ns", "correlation"), self._arrows).sort("start_ns")
        for thread, own in arrows.partition_by("thread", as_dict=True).items():
            there = _launching(by_thread.get(thread, calls.drop("thread").clear()), own["start_ns"])
            launches = own.join_asof(there, left_on="start_ns", right_on="since_ns").filter(
                pl.col("end_ns") >= pl.col("start_ns")
            )
            kind = pl.lit(int(HostKind.RUNTIME), pl.Int64)
            columns = ("thread", "start_ns", "end_ns", "name", kind, "correlation")
            self._rows["host"] += launches.select(columns).rows()

    def _write(self, table: str) -> None:
        rows, self._rows[table] = self._rows[table], []
        kept, dropped = keep_sane(_frame(_DEVICE if table == "device" else _HOST, rows))
        self.insane += dropped
        write(self._writer, table, self.rank, kept)


def _launching(calls: pl.DataFrame, arrows_ns: pl.Series) -> pl.DataFrame:
    """Calls in which an arrow begins: others may lie within them, before it."""
    before = arrows_ns.search_sorted(calls["since_ns"], side="left")
    until = arrows_ns.search_sorted(calls["end_ns"], side="right")
    return calls.filter(until > before)


def _frame(columns: tuple[str, ...], rows: Sequence[tuple[int | None, ...]]) -> pl.DataFrame:
    schema = dict.fromkeys(columns, pl.Int64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _number(value: object) -> int:
    """A thread or stream; what is none is zero."""
    text = str(value)
    is_number = text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 19
    return int(text) if is_number else 0
