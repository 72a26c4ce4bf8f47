"""Spools of processes that are not ours: records that are estimated from outside, in the same form.

The files are those that hooks would have written (`record/spool.py`), so that everything after them
is the same. `run.json` says that they are estimates.
"""

import itertools
import os
import time
from pathlib import Path

from fuelline.schema import wire
from fuelline.schema.files import open_own

_CHUNK = wire.TEXT_CHUNK


class EstimatedSpool:
    """Appends records of one process; a full disk loses records, which are counted."""

    def __init__(self, folder: Path, pid: int, ppid: int, trainer_tid: int = 0) -> None:
        name = f"{pid}-{time.monotonic_ns()}{wire.SUFFIX}"
        self._fd = open_own(folder / name, os.O_WRONLY | os.O_APPEND)
        self._trainer = trainer_tid
        self._texts = itertools.count(1)
        self._pid = pid
        self._held: list[bytes] = []
        self._size_bytes = 0
        self._dropped = 0
        header = wire.HEADER.pack(
            wire.MAGIC,
            wire.VERSION,
            pid,
            ppid,
            0,
            time.monotonic_ns(),
            time.clock_gettime_ns(time.CLOCK_REALTIME),
        ).ljust(wire.NOTES_OFFSET, b"\0")
        notes = wire.NOTES.pack(trainer_tid, 0, 0, 0, 0, 0)
        self._held.append((header + notes).ljust(wire.HEADER_BYTES, b"\0"))

    def add(
        self,
        kind: wire.Kind,
        start_ns: int,
        dur_ns: int,
        fields: tuple[int, ...] = (),
        *,
        flags: int = 0,
        tid: int = 0,
    ) -> None:
        """Keep one record; `fields` are its integers a to e, as far as there are any."""
        five = (*fields, 0, 0, 0, 0, 0)[:5]
        self._held.append(
            wire.RECORD.pack(start_ns, max(dur_ns, 0), *five, tid or self._pid, flags, int(kind))
        )

    def text(self, value: str) -> int:
        """Keep a text in chunks; gives the number by which records name it."""
        data, number = value.encode("utf-8", "replace")[:4096], next(self._texts)
        for chunk, at in enumerate(range(0, len(data) or 1, _CHUNK)):
            part = data[at : at + _CHUNK].ljust(_CHUNK, b"\0")
            self._held.append(
                wire.TEXT_RECORD.pack(
                    number, len(data), part, self._pid, chunk, int(wire.Kind.TEXT)
                )
            )
        return number

    def flush(self) -> None:
        """Write what is held, whole records only."""
        content, self._held = b"".join(self._held), []
        if not content:
            return
        try:
            if os.write(self._fd, content) == len(content):
                self._size_bytes += len(content)
                return
            os.ftruncate(self._fd, self._size_bytes)
        except OSError:
            pass
        self._dropped += len(content) // wire.RECORD_BYTES

    @property
    def dropped(self) -> int:
        """Records that found no room on the disk."""
        return self._dropped

    def close(self) -> None:
        """Write what is held and let go of the file."""
        self.flush()
        os.close(self._fd)
