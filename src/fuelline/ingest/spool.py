"""Spools in, event columns out. Reads what a process managed to write, however it ended.

A spool of a dead process looks like that of a living one: whole records, perhaps holes where a
thread was killed between taking a slot and filling it, then zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema import wire
from fuelline.schema.errors import DamagedRecordingError, NewerRecordingError

if TYPE_CHECKING:
    from pathlib import Path

_WORDS = wire.RECORD_BYTES // 8
_LONGEST_NS = 30 * 24 * 3600 * 10**9
"""An event longer than a month is a damaged record, not an event."""
_LARGEST_PID = 2**22
"""PID_MAX_LIMIT of Linux."""


@dataclass(frozen=True)
class SpoolContent:
    """One process's spool."""

    pid: int
    ppid: int
    created_ns: int
    events: pl.DataFrame
    texts: dict[int, str]
    dropped: int
    faults: int
    damaged: int
    """Records that cannot have been written by us: counted, not used."""


def read_spool(path: Path) -> SpoolContent | None:
    """Read one spool; None if the process died before its header was written."""
    raw = path.read_bytes()
    if len(raw) < wire.HEADER_BYTES or not any(raw[: wire.HEADER.size]):
        return None
    magic, version, pid, ppid, _, created_ns, _ = wire.HEADER.unpack_from(raw)
    if magic != wire.MAGIC:
        raise DamagedRecordingError(f"{path} does not start like a spool (found {magic!r}).")
    if version > wire.VERSION:
        raise NewerRecordingError(
            f"{path} has spool version {version}; this fuelline reads up to {wire.VERSION}."
        )
    if pid > _LARGEST_PID:
        raise DamagedRecordingError(f"{path} claims to be of process {pid}, which cannot exist.")
    body = memoryview(raw)[wire.HEADER_BYTES :]
    body = body[: len(body) // wire.RECORD_BYTES * wire.RECORD_BYTES]
    rows = _columns(body)
    texts = _texts(body, rows)
    written = rows.filter((pl.col("kind") != 0) & (pl.col("kind") != wire.Kind.TEXT))
    events = written.filter(
        pl.col("kind").is_in([int(kind) for kind in wire.Kind])
        & pl.col("dur_ns").is_between(0, _LONGEST_NS)
        & (pl.col("start_ns") > 0)
    )
    return SpoolContent(
        pid=pid,
        ppid=ppid,
        created_ns=created_ns,
        events=events.select(pl.lit(pid, pl.Int32).alias("pid"), *_EVENT_COLUMNS),
        texts=texts,
        dropped=wire.WORD.unpack_from(raw, wire.DROPPED_OFFSET)[0],
        faults=wire.WORD.unpack_from(raw, wire.FAULTS_OFFSET)[0],
        damaged=written.height - events.height,
    )


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


def _columns(body: memoryview) -> pl.DataFrame:
    """Split the records into columns.

    The last word holds tid, flags and kind: `kind << 48 | flags << 32 | tid`.
    """
    words = body.cast("q")
    names = ("start_ns", "dur_ns", "a", "b", "c", "d", "e", "last")
    frame = pl.DataFrame(
        {
            name: pl.Series(name, words[index::_WORDS].tolist(), dtype=pl.Int64)
            for index, name in enumerate(names)
        }
    )
    last = pl.col("last")
    return frame.with_columns(
        tid=last % 2**32 % 2**31,
        flags=last // 2**32 % 2**16,
        kind=last // 2**48 % 2**16,
    ).drop("last")


def _texts(body: memoryview, rows: pl.DataFrame) -> dict[int, str]:
    """Join the chunks of each text; a text whose chunks are not all there is left out."""
    chunks: dict[int, dict[int, bytes]] = {}
    sizes: dict[int, int] = {}
    at = rows.with_row_index("at").filter(pl.col("kind") == wire.Kind.TEXT)["at"].to_list()
    for index in at:
        text_id, size, payload, _, number, _ = wire.TEXT_RECORD.unpack_from(
            body, index * wire.RECORD_BYTES
        )
        chunks.setdefault(text_id, {})[number] = payload
        sizes[text_id] = size
    whole = {}
    for text_id, parts in chunks.items():
        wanted = -(-sizes[text_id] // wire.TEXT_CHUNK)
        if len(parts) == wanted and max(parts) == wanted - 1:
            data = b"".join(parts[number] for number in range(wanted))[: sizes[text_id]]
            whole[text_id] = data.decode("utf-8", "replace")
    return whole
