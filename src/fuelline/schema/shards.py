"""The layout of a packed data set: what `pack` writes and the job reads. Standard library only.

A folder with `index` and `shard-00000`, `shard-00001`, ... A shard is the content of many files,
one after the other, nothing between them. A file of `LARGE_BYTES` or more has a shard of its own,
so that it can be opened where it is. The index:

    HEADER  magic, version, entries, slots, bytes of names, bytes of the root's path
    root    the absolute path of the packed folder, then padding to 8 bytes
    entries ENTRY each, sorted by name: the names below a folder stand side by side
    slots   a hash table: number of an entry + 1, or 0; crc32 of the name, then the next slot
    names   one after the other, relative to the root, `/` between parts; the root itself is ""
"""

import struct
import zlib

MAGIC = b"FUELPAK1"
VERSION = 1
INDEX = "index"
SHARD = "shard-{:05d}"
JOURNAL = "journal"
"""Only while a pack is being made: entries that are safe in the shards, for resuming."""

HEADER = struct.Struct("<8sIIQQQQ")
"""magic, version, reserved, entries, slots, bytes of names, bytes of the root's path."""
ENTRY = struct.Struct("<QQQQIIIHH")
"""name offset, content offset, size, mtime ns, digest high, digest low, shard, mode, name bytes."""
SLOT = struct.Struct("<I")

SHARD_BYTES = 1 << 30
LARGE_BYTES = 4 << 20
"""Smaller files are copied into memory when they are opened; larger ones have a shard each."""


def hash_name(name: bytes) -> int:
    """Where the search for a name begins."""
    return zlib.crc32(name)


def round_up(position: int) -> int:
    """To the next multiple of eight."""
    return (position + 7) & ~7
