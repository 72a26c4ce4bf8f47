"""Follows the observer's journal while it grows: each frame is decoded once.

The first look takes the last seconds' frames; the ones before them are read afterwards, in slices,
and only for what may hold for the rest of the run: places, limits, counters, what could not be
seen. A frame that is cut off is read again when its rest is there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fuelline.schema.files import open_below
from fuelline.schema.run.journal import HEADER, MAX_FRAME_BYTES, decode_frames
from fuelline.schema.run.samples import (
    Blind,
    DeviceSample,
    DeviceSeen,
    HostSample,
    Limits,
    Place,
    Row,
)

if TYPE_CHECKING:
    from pathlib import Path

FIRST_LOOK_FRAMES = 15
"""One is written about every second."""
SLICE_BYTES = 1024 * 1024
_MOST_FRAMES = 2_000_000
"""Three weeks of them; what comes behind is read as it comes."""
_MOST_AT_ONCE = 16 * 1024 * 1024
"""Of new frames in one look: four of the longest, and more than a day's journal in ten minutes."""
_LASTING = frozenset({Place, Limits, Blind, HostSample, DeviceSeen, DeviceSample})
"""Only changes of counters are written, so the last value of one may be old."""


class JournalTail:
    """One journal, from one look to the next."""

    def __init__(self, path: Path) -> None:
        self.damaged = 0
        """Stretches whose checksum or content is wrong."""
        self._path = path
        self._at: int | None = None
        self._past = (0, 0)

    @property
    def is_counted(self) -> bool:
        """Whether everything before the first look has been read."""
        return self._past[0] >= self._past[1]

    def look(self) -> list[Row]:
        """The new rows, and lasting ones of the past; none if there is no journal (any more)."""
        try:
            fd = open_below(self._path.parent, self._path.name)
        except OSError:
            return []
        try:
            if self._at is None:
                self._begin(fd)
            rows = self._read_past(fd)
            return rows + self._follow(fd)
        finally:
            os.close(fd)

    def _begin(self, fd: int) -> None:
        """Find the frames of the last seconds by walking over all headers: 1 us each."""
        starts: list[int] = []
        at, size = 0, os.fstat(fd).st_size
        while at + HEADER.size <= size and len(starts) < _MOST_FRAMES:
            length = int(HEADER.unpack(os.pread(fd, HEADER.size, at))[0])
            if not 0 < length <= MAX_FRAME_BYTES:
                break  # damage; from the last frame before it the decoder finds its way
            starts.append(at)
            at += HEADER.size + length
        self._at = starts[-FIRST_LOOK_FRAMES] if len(starts) > FIRST_LOOK_FRAMES else 0
        self._past = (0, self._at)

    def _follow(self, fd: int) -> list[Row]:
        at = self._at or 0
        left = max(0, os.fstat(fd).st_size - at)
        found = os.pread(fd, min(left, _MOST_AT_ONCE), at)
        decoded = decode_frames(found)
        self._at = at + len(found) - decoded.torn_bytes
        self.damaged += decoded.damaged
        return decoded.rows

    def _read_past(self, fd: int) -> list[Row]:
        at, end = self._past
        found = os.pread(fd, min(SLICE_BYTES, end - at), at) if at < end else b""
        decoded = decode_frames(found)
        used = len(found) - decoded.torn_bytes
        if not used:  # one frame is longer than a slice, or the file was cut short
            found = os.pread(fd, min(_MOST_AT_ONCE, end - at), at) if at < end else b""
            decoded, used = decode_frames(found), len(found) or end - at
        self._past = (at + used, end)
        self.damaged += decoded.damaged
        return [row for row in decoded.rows if type(row) in _LASTING]
