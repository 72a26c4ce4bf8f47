"""The journal's file: rows are gathered and appended as one frame about once a second.

What must stay true: the file is always a sequence of whole frames, but for a kill in the middle of
a write. A full disk loses rows, never the file: a half-written frame is cut off again, the loss is
counted, and writing goes on when there is room.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from fuelline.schema.files import open_own
from fuelline.schema.run.journal import encode_frame
from fuelline.schema.run.samples import Blind, Row

MAX_FRAME_ROWS = 4096


class Writer:
    """Appends rows to a journal; never raises because of the disk."""

    def __init__(self, path: Path) -> None:
        self._fd = open_own(path, os.O_WRONLY | os.O_APPEND)
        self._size_bytes = os.fstat(self._fd).st_size
        self._rows: list[Row] = []
        self._lost = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Keep rows for the next frame."""
        self._rows.extend(rows)

    def flush(self) -> None:
        """Append what was gathered."""
        if self._lost and self._append([_blind(self._lost)]):
            self._lost = 0
        rows, self._rows = self._rows, []
        for start in range(0, len(rows), MAX_FRAME_ROWS):
            batch = rows[start : start + MAX_FRAME_ROWS]
            if not self._append(batch):
                self._lost += len(batch)

    def close(self) -> None:
        """Append what was gathered and let go of the file."""
        self.flush()
        os.close(self._fd)

    def _append(self, rows: list[Row]) -> bool:
        frame = encode_frame(rows)
        try:
            if os.write(self._fd, frame) == len(frame):
                self._size_bytes += len(frame)
                return True
            os.ftruncate(self._fd, self._size_bytes)
        except OSError:
            return False
        return False


def _blind(lost_rows: int) -> Blind:
    return Blind(
        f"{lost_rows} rows of the observer",
        "the disk was full or could not be written",
        "what threads and host did in those seconds",
    )
