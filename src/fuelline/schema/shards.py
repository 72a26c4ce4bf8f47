"""The layout of a packed data set: what `pack` writes and the job reads. Standard library only.

A folder with `index` and `shard-00000`, `shard-00001`, ... A shard is the content of many files,
one after the other, nothing between them. A file of `LARGE_BYTES` or more has its own shard,
so that it can be opened where it is. The index:

    HEADER  magic, version, checksum, entries, slots, bytes of names, bytes of the root's path
    root    the absolute path of the packed folder, then padding to 8 bytes
    entries ENTRY each, sorted by name: the names below a folder stand side by side
    slots   a hash table: number of an entry + 1, or 0; crc32 of the name, then the next slot
    names   one after the other, relative to the root, `/` between parts; the root itself is ""

Version 2 has a checksum of the index, and a crc32 of each file, quick enough to be taken at every
reading. Packs of version 1 are read: their index has no checksum, and the hash of a file is slower.
"""

import struct
import zlib
from hashlib import blake2b

MAGIC = b"FUELPAK1"
VERSION = 2
OLDEST = 1
"""That is still read."""
INDEX = "index"
SHARD = "shard-{:05d}"
JOURNAL = "journal"
"""Only while a pack is being made: entries that are safe in the shards, for resuming."""

HEADER = struct.Struct("<8sIIQQQQ")
"""magic, version, checksum, entries, slots, bytes of names, bytes of the root's path."""
CHECKSUM_AT = 12
"""Of the index, with zeros here; crc32."""
ENTRY = struct.Struct("<QQQqIIIHH")
"""name offset, content offset, size, mtime ns, two parts of a digest, shard, mode, name bytes."""
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


class Digest:
    """Of one file's content, as it grows: crc32, quick to check, and half a word of BLAKE2b."""

    def __init__(self) -> None:
        self.crc = 0
        self._rest = blake2b(digest_size=4)

    def update(self, content: bytes) -> None:
        """More of it."""
        self.crc = zlib.crc32(content, self.crc)
        self._rest.update(content)

    def digest(self) -> bytes:
        """Eight bytes."""
        return self.crc.to_bytes(4, "little") + self._rest.digest()
