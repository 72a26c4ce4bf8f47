"""Spools in, event columns out. Reads what a process managed to write, however it ended.

A piece at a time: a spool may have a quarter of a gigabyte, and its records take several times as
much room as Python objects.

A spool of a dead process looks like that of a living one: whole records. Before version 2 there
could be holes among them, where a thread was killed between taking a slot and filling it, and
zeros at the end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from fuelline.ingest.recording.excerpts import MOST_RECORDS, choose_rows, cut_events
from fuelline.schema import wire
from fuelline.schema.errors import DamagedRecordingError, NewerRecordingError
from fuelline.schema.files import open_below, refuse_holes
from fuelline.timeline.tables import empty_table

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.run.recording import Excerpts

MOST_BYTES = wire.CAP_BYTES + 1024 * 1024
"""Of a spool; the recorder stops before."""
_WORDS = wire.RECORD_BYTES // 8
LONGEST_NS = 30 * 24 * 3600 * 10**9
"""An event longer than a month is a damaged record, not an event."""
_LARGEST_PID = 2**22
"""PID_MAX_LIMIT of Linux; of threads, too."""
CHUNK_BYTES = 8 * 1024 * 1024
"""Read at a time: 131,072 records."""
MOST_KEPT = 4 * MOST_RECORDS
"""In excerpts of one process: a job's have less than `MOST_RECORDS`, but for chance."""
PACE_RECORDS = 1024
"""Records that tell how quickly they came."""
_KIND_AT = wire.RECORD_BYTES - 2
_TIMELESS = (0, wire.Kind.TEXT, wire.Kind.BLINDSPOT)
MOST_TEXT_BYTES = 64 * 1024
"""Of one text; the recorder cuts them at 4096."""
NOTED_BYTES = wire.NOTES_OFFSET + wire.NOTES.size
"""The part of the header page that has something in it."""


@dataclass(frozen=True)
class SpoolContent:
    """One process's spool."""

    pid: int
    ppid: int
    created_ns: int
    events: pl.DataFrame
    records: int
    """How many there were; of them, `events` may be excerpts."""
    texts: dict[int, str]
    dropped: int
    faults: int
    damaged: int
    """Records that cannot have been written by us during the run: counted, not used."""
    is_cut: bool
    """Whether it is shorter than the recorder left it."""


@dataclass(frozen=True)
class SpoolHeader:
    """Whose spool it is, and what its words said at the moment of reading."""

    pid: int
    ppid: int
    created_ns: int
    trainer_tid: int
    dropped: int
    faults: int
    live_fd: int
    """The process's descriptor of its live page, plus one; 0 if there is none."""
    stopped_errno: int
    written_bytes: int


def read_header(raw: bytes, path: Path) -> SpoolHeader | None:
    """Read the first page of a spool, or its first NOTED_BYTES; None if it is not written yet."""
    if len(raw) < NOTED_BYTES or not any(raw[: wire.HEADER.size]):
        return None
    magic, version, pid, ppid, _, created_ns, _ = wire.HEADER.unpack_from(raw)
    if magic != wire.MAGIC:
        raise DamagedRecordingError(f"{path} does not start like a spool (found {magic!r}).")
    if version > wire.VERSION:
        raise NewerRecordingError(
            f"{path} has spool version {version}; this fuelline reads up to {wire.VERSION}. "
            "Nothing was changed. `pip install -U fuelline` brings a version that reads it."
        )
    if pid > _LARGEST_PID:
        raise DamagedRecordingError(f"{path} claims to be of process {pid}, which cannot exist.")
    return SpoolHeader(pid, ppid, created_ns, *wire.NOTES.unpack_from(raw, wire.NOTES_OFFSET))


def check_size(descriptor: int, path: Path) -> None:
    """Raise if it is longer than the recorder lets a spool become."""
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes > MOST_BYTES:
        raise DamagedRecordingError(
            f"{path} has {size_bytes} bytes, more than the {MOST_BYTES} that a spool may have."
        )


def read_spool(
    path: Path, within_ns: tuple[int, int] | None = None, excerpts: Excerpts | None = None
) -> SpoolContent | None:
    """Read one spool; None if the process died before its header was written.

    Records that do not begin and end within the given times are damaged: the spool has no
    checksums, but nothing can have happened before the run or after it. Of a recording with very
    many records only `excerpts` are kept; the memory that this takes does not grow with the file.
    Records that crowd into an excerpt as no job's do, of a file that was made so, are damaged, too.
    """
    with os.fdopen(open_below(path.parent, path.name), "rb") as file:
        check_size(file.fileno(), path)
        refuse_holes(file, path.name)
        header = _read_header(file, path)
        if header is None:
            return None
        texts, frames, written, possible, room = Texts(), [], 0, 0, MOST_KEPT
        while chunk := file.read(CHUNK_BYTES):
            if not _has_any(chunk):
                continue
            rows = _columns(chunk, _FIELDS if excerpts is None else _TIMES)
            for at in (rows["kind"] == wire.Kind.TEXT).arg_true():
                texts.add(chunk, at * wire.RECORD_BYTES)
            rows = rows.filter((pl.col("kind") != 0) & (pl.col("kind") != wire.Kind.TEXT))
            written += rows.height
            rows = rows.filter(_is_possible(within_ns))
            possible += rows.height
            if excerpts is not None:
                chosen = choose_rows(rows, excerpts)
                possible -= max(0, chosen.len() - room)
                rows = _columns(_pick(chunk, chosen.head(room)), _FIELDS)
                room -= rows.height
            events = rows.select(pl.lit(header.pid, pl.Int32).alias("pid"), *_EVENT_COLUMNS)
            frames.append(events if excerpts is None else cut_events(events, excerpts))
        size_bytes = file.tell()
    return SpoolContent(
        pid=header.pid,
        ppid=header.ppid,
        created_ns=header.created_ns,
        events=pl.concat(frames) if frames else empty_table("events"),
        records=possible,
        texts=texts.whole(),
        dropped=header.dropped,
        faults=header.faults,
        damaged=written - possible,
        is_cut=size_bytes < header.written_bytes,
    )


def _read_header(file: BinaryIO, path: Path) -> SpoolHeader | None:
    page = file.read(wire.HEADER_BYTES)
    header = read_header(page, path) if len(page) == wire.HEADER_BYTES else None
    # Header and first records are written at once, so one without the other was cut short.
    if header is None and any(
        map(_has_any, chain([page], iter(lambda: file.read(CHUNK_BYTES), b"")))
    ):
        raise DamagedRecordingError(f"{path} was cut short: its first bytes are not its header.")
    return header


def _has_any(chunk: bytes) -> bool:
    """Whether it is more than zeros; a file of holes has gigabytes of them for nothing."""
    return chunk != bytes(len(chunk))


def count_records(path: Path) -> int:
    """How many records a spool has at most, by its size; 0 if that cannot be seen."""
    try:
        size_bytes = path.lstat().st_size
    except OSError:
        return 0
    return max(0, size_bytes - wire.HEADER_BYTES) // wire.RECORD_BYTES


def read_moments(path: Path) -> list[int]:
    """When some records at equal distances in a spool began, in order."""
    records, moments_ns = count_records(path), []
    with os.fdopen(open_below(path.parent, path.name), "rb") as file:
        refuse_holes(file, path.name)
        for number in range(0, records, max(1, records // PACE_RECORDS)):
            file.seek(wire.HEADER_BYTES + number * wire.RECORD_BYTES)
            record = file.read(wire.RECORD_BYTES)
            if len(record) == wire.RECORD_BYTES and record[_KIND_AT] not in _TIMELESS:
                moments_ns.append(wire.WORD.unpack_from(record)[0])
    return sorted(moments_ns)


def _is_possible(within_ns: tuple[int, int] | None) -> pl.Expr:
    """Whether the recorder can have written a record, as far as one record can tell."""
    is_timed = (pl.col("start_ns") > 0) & pl.col("dur_ns").is_between(0, LONGEST_NS)
    if within_ns is not None:
        first_ns, last_ns = within_ns
        is_timed &= pl.col("start_ns") >= first_ns
        is_timed &= pl.col("start_ns") <= last_ns - pl.col("dur_ns")  # a sum could overflow
    is_kind = pl.col("kind").is_in([int(kind) for kind in wire.Kind])
    has_no_time = pl.col("kind") == wire.Kind.BLINDSPOT
    return is_kind & (pl.col("tid") <= _LARGEST_PID) & (is_timed | has_no_time)


_EVENT_COLUMNS = (
    pl.col("tid").cast(pl.Int32),
    pl.col("kind").cast(pl.UInt8),
    pl.col("flags").cast(pl.UInt16),
    "start_ns",
    "dur_ns",
    "a",
    "b",
    "c",
    "d",
    "e",
)


_TIMES = ("start_ns", "dur_ns")
_FIELDS = (*_TIMES, "a", "b", "c", "d", "e")


def _columns(body: bytes, names: tuple[str, ...]) -> pl.DataFrame:
    """The first fields of each record, its tid, flags and kind, and where it is: `at`.

    The last word holds tid, flags and kind: `kind << 48 | flags << 32 | tid`. Half a record at the
    end is left out.
    """
    words = memoryview(body)[: len(body) // wire.RECORD_BYTES * wire.RECORD_BYTES].cast("q")
    last = pl.col("last")
    return (
        pl.DataFrame(
            {
                name: pl.Series(name, words[index::_WORDS].tolist(), dtype=pl.Int64)
                for index, name in (*enumerate(names), (_WORDS - 1, "last"))
            }
        )
        .with_columns(
            tid=last % 2**32 % 2**31, flags=last // 2**32 % 2**16, kind=last // 2**48 % 2**16
        )
        .drop("last")
        .with_row_index("at")
    )


def _pick(body: bytes, places: pl.Series) -> bytes:
    """These records, end to end."""
    size = wire.RECORD_BYTES
    return b"".join(body[at * size : (at + 1) * size] for at in places)


class Texts:
    """The chunks of a spool's texts as they come."""

    def __init__(self) -> None:
        self._chunks: dict[int, dict[int, bytes]] = {}
        self._sizes: dict[int, int] = {}

    def whole(self) -> dict[int, str]:
        """Every text whose chunks are all there; the others are left out."""
        return {each: text for each in self._chunks if (text := self.find(each)) is not None}

    def add(self, body: bytes, offset: int) -> None:
        """Take the chunk in the TEXT record at an offset, unless its text is longer than any."""
        text_id, size, payload, _, number, _ = wire.TEXT_RECORD.unpack_from(body, offset)
        if size > MOST_TEXT_BYTES:
            return
        self._chunks.setdefault(text_id, {})[number] = payload
        self._sizes[text_id] = size

    def find(self, text_id: int) -> str | None:
        """The text; None as long as its chunks are not all there."""
        parts = self._chunks.get(text_id)
        if parts is None:
            return None
        size = self._sizes[text_id]
        wanted = -(-size // wire.TEXT_CHUNK)
        if len(parts) != wanted or max(parts) != wanted - 1:
            return None
        data = b"".join(parts[number] for number in range(wanted))[:size]
        return data.decode("utf-8", "replace")
