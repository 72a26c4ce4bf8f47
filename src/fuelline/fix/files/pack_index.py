"""The index of a pack: written in one piece, under its name only when it is safe on the disk."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, NamedTuple

from fuelline.schema.files import write_whole
from fuelline.schema.shards import (
    CHECKSUM_AT,
    ENTRY,
    HEADER,
    INDEX,
    MAGIC,
    SLOT,
    VERSION,
    hash_name,
    round_up,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Packed(NamedTuple):
    """One file or folder as it is in the pack."""

    name: str
    shard: int
    offset: int
    size: int
    mtime_ns: int
    mode: int
    digest: bytes
    """`Digest` of what the source gave; zeros for a folder."""


def write_index(target: Path, root: str, entries: list[Packed]) -> None:
    """Sort, lay out, write, sync, rename."""
    rows = sorted((os.fsencode(each.name), each) for each in entries)
    names = [name for name, _ in rows]
    root_bytes = os.fsencode(root)
    slots = 1 << max(1, (2 * len(rows) - 1).bit_length())
    sizes = len(rows), slots, sum(map(len, names)), len(root_bytes)
    parts = [
        HEADER.pack(MAGIC, VERSION, 0, *sizes) + root_bytes,
        b"",
        b"".join(_pack_entries(rows)),
        bytes(_lay_out_slots(names, slots)),
        b"".join(names),
    ]
    parts[1] = bytes(round_up(len(parts[0])) - len(parts[0]))
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    with write_whole(target / INDEX, mode=0o666) as file:
        file.writelines(parts)
        file.seek(CHECKSUM_AT)
        file.write(checksum.to_bytes(4, "little"))
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(target, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _pack_entries(rows: list[tuple[bytes, Packed]]) -> Iterator[bytes]:
    at = 0
    for name, each in rows:
        crc, rest = (int.from_bytes(part, "little") for part in (each.digest[:4], each.digest[4:]))
        place = at, each.offset, each.size, each.mtime_ns
        yield ENTRY.pack(*place, crc, rest, each.shard, each.mode, len(name))
        at += len(name)


def _lay_out_slots(names: list[bytes], slots: int) -> bytearray:
    table = bytearray(slots * SLOT.size)
    numbers = memoryview(table).cast("I")
    for number, name in enumerate(names, start=1):
        slot = hash_name(name) & (slots - 1)
        while numbers[slot]:
            slot = (slot + 1) & (slots - 1)
        numbers[slot] = number
    return table
