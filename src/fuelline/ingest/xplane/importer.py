"""XPlane: one file per host, one device plane per accelerator, host threads on another plane.

Streams of GPUs and the operations of TPUs become device events, threads become host events. Lines
that the profiler derives from others (operators, name scopes, modules) say nothing new and are left
out, except its steps.
"""

from __future__ import annotations

import mmap
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.importer import Imported
from fuelline.ingest.name_book import NameBook
from fuelline.ingest.protobuf import WireError, find_whole_end, read_varint, text
from fuelline.ingest.spans import describe_insane, keep_sane, write
from fuelline.ingest.unpack import TruncatedError, is_packed, read_blocks, say_byte
from fuelline.ingest.xplane.events import (
    DEVICE_COLUMNS,
    HOST_COLUMNS,
    describe_chip,
    device_row,
    find_device,
    host_row,
)
from fuelline.ingest.xplane.messages import SPACE
from fuelline.ingest.xplane.planes import Plane
from fuelline.schema.errors import InputError
from fuelline.schema.names import clean
from fuelline.schema.run.trace import ChipFacts, Quality, RankFacts, SourceFacts
from fuelline.timeline.trace import TRACE_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fuelline.ingest.importer import PartWriter
    from fuelline.ingest.protobuf import Buffer
    from fuelline.ingest.xplane.planes import PlaneLine

    Row = tuple[object, ...]

_STEPS = "Steps"
_STREAM = "Stream #"
_OPERATIONS = "XLA Ops"
"""Names of lines (xla/tsl/profiler/utils/xplane_schema.h and the device tracers)."""
_HOST = "/host:"
_PART_ROWS = 100_000
_MOST_WARNINGS = 5
_LONGEST_NAME = 256


class XPlane:
    """The importer of `*.xplane.pb`."""

    format = "xplane"

    def recognises(self, head: bytes) -> bool:
        """A repeated message that begins like a plane: maybe a number, then a printable name."""
        try:
            return _begins_with_plane(head)
        except WireError:
            return False

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """See `Importer`; `partial` reads the planes that are whole."""
        with _opened(path, partial=partial) as data:
            space = _Space(data, rank, writer)
            try:
                space.read(advance, find_whole_end(data, len(data)) if partial else len(data))
            except WireError as error:
                hint = "" if partial else ", or read its whole planes with `--partial`"
                raise InputError(
                    f"{path}, {say_byte(path, error.at)}: {error.what}. It is cut off or "
                    f"damaged; nothing was imported. Copy it again{hint}."
                ) from None
            return space.imported(path)


@contextmanager
def _opened(path: Path, *, partial: bool) -> Iterator[Buffer]:
    """The file's bytes: in place, or in memory if it is packed."""
    with path.open("rb") as file:
        if is_packed(file.read(4)):
            yield _unpacked(path, partial=partial)
        else:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield data


def _unpacked(path: Path, *, partial: bool) -> bytes:
    blocks: list[bytes] = []
    try:
        blocks.extend(read_blocks(path, lambda _: None))
    except TruncatedError:
        if not partial:
            raise
    return b"".join(blocks)


class _Space:
    """One file on its way into tables."""

    def __init__(self, data: Buffer, rank: int, writer: PartWriter) -> None:
        self._data = data
        self._rank = rank
        self._writer = writer
        self._names = NameBook()
        self._chips: list[ChipFacts] = []
        self._silent: list[int] = []
        self._steps: dict[int, tuple[int, int]] = {}
        self._events = 0
        self._insane = 0
        self._host = ""
        self._said: list[str] = []
        self._end = len(data)

    def read(self, advance: Callable[[int], None], end: int) -> None:
        """All planes up to a byte; what follows was not all there."""
        planes, errors, warnings, hosts = SPACE.read(self._data, 0, end)
        if not planes:
            raise WireError(end, "no plane is whole")
        self._end = end
        self._host = text(self._data, hosts[0]) if hosts else ""
        self._said = [text(self._data, span) for span in (*errors, *warnings)]
        for span in planes:
            plane = Plane(self._data, span)
            device = find_device(plane.name)
            if device is not None:
                self._read_device(plane, device)
            elif plane.name.startswith(_HOST):
                for line in plane.lines():
                    self._read_host(plane, line)
            advance(span[1] - span[0])
        self._write_steps()
        self._writer.add("names", self._rank, self._names.frame())

    def imported(self, path: Path) -> Imported:
        """What is left to say."""
        return Imported(
            source=SourceFacts(
                file=path.name,
                format=XPlane.format,
                size_bytes=len(self._data),
                ranks=[self._rank],
                events=self._events,
            ),
            ranks=[
                RankFacts(rank=self._rank, host=self._host, chips=self._chips, is_rank_known=False)
            ],
            quality=[*describe_insane(self._insane), *self._quality()],
        )

    def _read_device(self, plane: Plane, device: int) -> None:
        self._chips.append(describe_chip(device, plane.stats()))
        before = self._events
        lines = list(plane.lines())
        for line in lines:
            if line.name.startswith(_STREAM) or line.name == _OPERATIONS:
                events = plane.events(line)
                rows = (device_row(event, device, line, self._names) for event in events)
                self._write("device", DEVICE_COLUMNS, rows)
            elif line.name == _STEPS:
                self._note_steps(plane, line)
        if self._events == before:
            self._silent.append(device)

    def _read_host(self, plane: Plane, line: PlaneLine) -> None:
        rows = (host_row(event, line, self._names) for event in plane.events(line))
        self._write("host", HOST_COLUMNS, rows)

    def _write(self, table: str, columns: tuple[str, ...], rows: Iterator[Row]) -> None:
        while part := list(islice(rows, _PART_ROWS)):
            self._events += len(part)
            frame = pl.DataFrame(
                [
                    pl.Series(column, values, pl.Int64)
                    for column, values in zip(columns, zip(*part, strict=True), strict=True)
                ]
            )
            kept, dropped = keep_sane(frame)
            self._insane += dropped
            write(self._writer, table, self._rank, kept)

    def _note_steps(self, plane: Plane, line: PlaneLine) -> None:
        """A step that several devices mark lasts from the first to the last of them."""
        for event in plane.events(line):
            if event.name.isdigit() and len(event.name) < 19:
                known = self._steps.get(int(event.name), (event.start_ns, event.end_ns))
                self._steps[int(event.name)] = (
                    min(known[0], event.start_ns),
                    max(known[1], event.end_ns),
                )

    def _write_steps(self) -> None:
        if self._steps:
            rows = sorted((step, start, end) for step, (start, end) in self._steps.items())
            frame = pl.DataFrame(rows, schema=dict(TRACE_TABLES["steps"]), orient="row")
            self._writer.add("steps", self._rank, frame)

    def _quality(self) -> list[Quality]:
        found = [
            Quality(
                problem=f"the profiler says: {clean(said)[:200]}",
                forbids="totals over the whole trace",
                code="dropped",
            )
            for said in self._said[:_MOST_WARNINGS]
        ]
        if self._end < len(self._data):
            found.append(
                Quality(
                    problem=f"the file was cut short; the plane at byte {self._end} and what "
                    "follows are not there",
                    forbids="anything about devices and threads that are missing, and totals",
                    code="truncated",
                )
            )
        if self._silent and len(self._silent) < len(self._chips):
            found.append(
                Quality(
                    problem=f"{len(self._silent)} of {len(self._chips)} devices have no event "
                    f"({', '.join(map(str, self._silent))}): not used, or the profiler's buffers "
                    "were full",
                    forbids="anything about them; they must not be called idle",
                    code="silent-devices",
                )
            )
        elif self._silent or not self._chips:
            found.append(
                Quality(
                    problem="no device event was recorded",
                    forbids="anything about the device; it must not be called idle",
                    code="no-device",
                )
            )
        return found


def _begins_with_plane(head: bytes) -> bool:
    """Field 1 of XSpace, and in it, after an optional number, a name of printable characters."""
    if head[:1] != b"\n":
        return False
    size, at = read_varint(head, 1, len(head))
    end = min(len(head), at + size)
    if head[at : at + 1] == b"\x08":
        _, at = read_varint(head, at + 1, end)
    if head[at : at + 1] != b"\x12":
        return False
    length, at = read_varint(head, at + 1, end)
    name = head[at : at + length]
    return (
        0 < length <= min(_LONGEST_NAME, end - at)
        and name.isascii()
        and name.decode().isprintable()
    )
