"""The index of a pack: written in one piece, under its name only when it is safe on the disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from fuelline.schema.shards import (
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
    """BLAKE2b, 8 bytes, of what the source gave; zeros for a folder."""


def write_index(target: Path, root: str, entries: list[Packed]) -> None:
    """Sort, lay out, write, sync, rename."""
    rows = sorted((os.fsencode(each.name), each) for each in entries)
    names = [name for name, _ in rows]
    root_bytes = os.fsencode(root)
    slots = 1 << max(1, (2 * len(rows) - 1).bit_length())
    header = HEADER.pack(MAGIC, VERSION, 0, len(rows), slots, sum(map(len, names)), len(root_bytes))
    draft = target / f".{INDEX}"
    with draft.open("wb") as file:
        file.write(header + root_bytes)
        file.write(bytes(round_up(file.tell()) - file.tell()))
        _write_entries(file, rows)
        file.write(_lay_out_slots(names, slots))
        file.writelines(names)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(target / INDEX)
    folder = os.open(target, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _write_entries(file: object, rows: list[tuple[bytes, Packed]]) -> None:
    at = 0
    for name, each in rows:
        high = int.from_bytes(each.digest[:4], "little")
        low = int.from_bytes(each.digest[4:], "little")
        file.write(  # type: ignore[attr-defined]
            ENTRY.pack(
                at,
                each.offset,
                each.size,
                each.mtime_ns,
                high,
                low,
                each.shard,
                each.mode,
                len(name),
            )
        )
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
