"""Perfetto's protocol buffers: slices of rocprofv3, of ROCm's systems profiler, or of Kineto.

Which slices are a device's is told by their categories (`kernel_dispatch`, `memory_copy`, Kineto's
`kernel`): a track has no kind of its own. Slices of other programs are host events, so that a trace
without a device is imported and said to have none.
"""

from __future__ import annotations

import mmap
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.importer import Imported
from fuelline.ingest.kineto.sorts import CATEGORIES
from fuelline.ingest.perfetto.slices import PACKET_TAG, SliceReader, Track
from fuelline.ingest.protobuf import WireError, find_whole_end, read_varint
from fuelline.ingest.rocm.rows import RocmTables, find_host_kind
from fuelline.ingest.spans import describe_insane, write
from fuelline.ingest.unpack import TruncatedError, is_packed, read_blocks, say_byte
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import HostKind, Quality, RankFacts, SourceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from fuelline.ingest.importer import PartWriter
    from fuelline.ingest.perfetto.slices import TrackSlice
    from fuelline.ingest.protobuf import Buffer

_KERNELS = re.compile(r"kernel_dispatch|^device_hip$|^(Concurrent)?[Kk]ernel$")
_COPIES = re.compile(r"memory_copy|^gpu_mem(cpy|set)$|^Mem(cpy|set)$")
_MARKERS = re.compile(r"marker|roctx|user|annotation", re.IGNORECASE)
_CALLS = re.compile(r"hip|hsa|rccl|_api$")
_PLACE = re.compile(r"(?:AGENT|GPU|DEVICE)\s*\[?(\d{1,4})", re.IGNORECASE)
_STREAM = re.compile(r"(?:STREAM|QUEUE)\s*\[?(\d{1,9})", re.IGNORECASE)
_NUMBERS = ("corr_id", "correlation", "correlation_id", "stack_id", "External id")
_PACKET_FIELDS = frozenset(
    (6, 8, 9, 10, 11, 12, 13, 33, 35, 36, 41, 42, 43, 44, 45, 50, 56, 58, 59, 60, 79, 87, 88)
)
"""Of TracePacket: those that a first packet begins with."""


class Perfetto:
    """The importer of Perfetto's own format."""

    format = "perfetto"

    def recognises(self, head: bytes) -> bool:
        """A repeated message whose own first field is one of a packet's, and no name of a plane."""
        try:
            return _begins_with_packet(head)
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
        """See `Importer`; `partial` reads the packets that are whole."""
        with _opened(path, advance, partial=partial) as data:
            reader, tables = SliceReader(), RocmTables(rank, writer)
            end = find_whole_end(data, len(data)) if partial else len(data)
            marks: list[tuple[int, int, int]] = []
            try:
                for found in reader.read(data, end):
                    step = _STEP_MARK.match(found.name)
                    if step is not None and not _KERNELS.search(found.category):
                        marks.append((int(step[1]), found.start_ns, found.end_ns))
                    _place(found, reader.tracks.get(found.track, _NOWHERE), tables)
            except WireError as error:
                hint = "" if partial else ", or read its whole packets with `--partial`"
                raise InputError(
                    f"{path}, {say_byte(path, error.at)}: {error.what}. It is cut off or damaged; "
                    f"nothing was imported. Copy it again{hint}."
                ) from None
            size_bytes = len(data)
        steps = pl.DataFrame(sorted(set(marks)), schema=_STEP, orient="row")
        if not tables.events:
            raise InputError(
                f"{path} was read to its end at {say_byte(path, size_bytes)} and holds no event: "
                "no slice of a track began and ended. Nothing was imported. Record it again with "
                "the calls and kernels switched on."
            )
        tables.finish()
        write(writer, "steps", rank, steps)
        return Imported(
            source=SourceFacts(
                file=path.name,
                format=Perfetto.format,
                size_bytes=path.stat().st_size,
                ranks=[rank],
                events=tables.events,
            ),
            ranks=[RankFacts(rank=rank, pid=_find_process(reader.tracks), is_rank_known=False)],
            quality=[
                *describe_insane(tables.insane),
                *_describe_losses(reader),
                *_describe_cut(end, size_bytes),
            ],
        )


_NOWHERE = Track()
_STEP_MARK = re.compile(r"^ProfilerStep#(\d{1,18})$")
_STEP = dict.fromkeys(("step", "start_ns", "end_ns"), pl.Int64)


def _begins_with_packet(head: bytes) -> bool:
    if not head or head[0] != PACKET_TAG:
        return False
    size, at = read_varint(head, 1, len(head))
    end = min(len(head), at + size)
    fields = 0
    while at < end:
        tag, at = read_varint(head, at, end)
        if tag >> 3 not in _PACKET_FIELDS:
            return False
        fields += 1
        if tag & 7 == 0:
            _, at = read_varint(head, at, end)
        elif tag & 7 == 2:
            inner, at = read_varint(head, at, end)
            at += inner
        elif tag & 7 in (1, 5):
            at += 8 if tag & 7 == 1 else 4
        else:
            return False
    # What follows is another packet, unless the file ends here.
    return fields > 0 and (at >= len(head) or head[at] == PACKET_TAG)


@contextmanager
def _opened(path: Path, advance: Callable[[int], None], *, partial: bool) -> Iterator[Buffer]:
    """The file's bytes: in place, or in memory if it is packed."""
    with path.open("rb") as file:
        if not is_packed(file.read(4)):
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield data
            advance(path.stat().st_size)
            return
    blocks: list[bytes] = []
    try:
        blocks.extend(read_blocks(path, advance))
    except TruncatedError:
        if not partial:
            raise
    yield b"".join(blocks)


def _place(found: TrackSlice, track: Track, tables: RocmTables) -> None:
    """One slice into its table."""
    said, span = found.said, (found.start_ns, found.end_ns)
    number = next((said[name] for name in _NUMBERS if isinstance(said.get(name), int)), None)
    correlation = int(number) if number is not None else None
    if _KERNELS.search(found.category):
        sizes = ((_number(said, "grid_size", "grid"),), (_number(said, "workgroup_size", "block"),))
        tables.kernel(_where(said, track), span, found.name, correlation, sizes)
    elif _COPIES.search(found.category):
        size_bytes = _number(said, "copy_bytes", "bytes", "size")
        tables.copy(_where(said, track), span, found.name, correlation, size_bytes)
    else:
        thread = _number(said, "tid")
        thread = thread if thread is not None else track.tid or found.track & _LOW_BITS
        tables.call(thread, span, found.name, _find_kind(found), correlation)


_LOW_BITS = (1 << 62) - 1
"""Tracks are numbered with all 64 bits; a thread's number is signed."""


def _where(said: Mapping[str, int | str], track: Track) -> tuple[int, int]:
    """Device and stream: as the slice says, else as its track is called."""
    place, lane = _PLACE.search(track.name), _STREAM.search(track.name)
    device = _number(said, "device", "Device Id")
    stream = _number(said, "stream", "stream_id", "queue")
    if device is None:
        device = int(place[1]) if place else 0
    if stream is None:
        stream = int(lane[1]) if lane else 0
    return device, stream


def _number(said: Mapping[str, int | str], *names: str) -> int | None:
    found = (said.get(name) for name in names)
    return next((value for value in found if isinstance(value, int)), None)


def _find_kind(found: TrackSlice) -> HostKind:
    kind = CATEGORIES.get(found.category)
    if kind is not None and kind.table == "host":
        return HostKind(kind.kind)
    if _MARKERS.search(found.category):
        return HostKind.ANNOTATION
    if _CALLS.search(found.category):
        return HostKind.RUNTIME
    return find_host_kind(found.name)


def _find_process(tracks: Mapping[int, Track]) -> int | None:
    return next((track.pid for track in tracks.values() if track.pid is not None), None)


def _describe_losses(reader: SliceReader) -> list[Quality]:
    found = []
    if reader.dropped:
        found.append(
            Quality(
                code="dropped",
                problem=f"Perfetto lost packets in {reader.dropped} places: its buffer was full",
                forbids="totals over the whole trace",
            )
        )
    if reader.unended:
        found.append(
            Quality(
                code="unended",
                problem=f"{reader.unended} slices have no end; left out",
                forbids="what was going on when the trace ended",
            )
        )
    return found


def _describe_cut(end: int, size_bytes: int) -> list[Quality]:
    if end == size_bytes:
        return []
    return [
        Quality(
            code="truncated",
            problem=f"the file was cut short: {size_bytes - end} of its {size_bytes} bytes are of "
            "a packet that is not whole",
            forbids="totals over the whole trace",
        )
    ]
