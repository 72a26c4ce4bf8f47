"""A read-only FUSE passthrough with delays.

    python -m bench.zoo.faults.slow_mount SOURCE MOUNT READ_MS OPEN_MS GETATTR_MS MODE KEEP_S

In mode `parallel` every call waits its own delay, like a distant server. In mode `serial` one call
is served at a time, like a metadata server that many clients share. The kernel keeps names and
attributes for KEEP_S seconds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mfusepy


class Passthrough(mfusepy.Operations):
    """The calls that a training job makes; everything else is refused by the base class."""

    use_ns = True

    def __init__(
        self, source: Path, delays_ms: tuple[float, float, float], *, serial: bool
    ) -> None:
        self._source = source
        self._read_s, self._open_s, self._getattr_s = (ms / 1000 for ms in delays_ms)
        self._turn = threading.Lock() if serial else contextlib.nullcontext()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        """Status of a file, late."""
        self._delay(self._getattr_s)
        try:
            status = os.lstat(self._real(path))
        except FileNotFoundError:
            raise mfusepy.FuseOSError(errno.ENOENT) from None
        names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")
        return {name: getattr(status, name) for name in names} | {"st_mtime": status.st_mtime_ns}

    def readdir(self, path: str, fh: int) -> list[str]:
        """Names in a folder, without delay."""
        return [".", "..", *(entry.name for entry in Path(self._real(path)).iterdir())]

    def open(self, path: str, flags: int) -> int:
        """A descriptor of the real file, late."""
        self._delay(self._open_s)
        return os.open(self._real(path), os.O_RDONLY)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """Content, late."""
        self._delay(self._read_s)
        return os.pread(fh, size, offset)

    def release(self, path: str, fh: int) -> int:
        """Close the real file."""
        os.close(fh)
        return 0

    def _delay(self, seconds: float) -> None:
        if seconds:
            with self._turn:
                time.sleep(seconds)

    def _real(self, path: str) -> str:
        return f"{self._source}{path}"


def main() -> None:
    source, mount, *delays, mode, keep_s = sys.argv[1:]
    read_ms, open_ms, getattr_ms = (float(ms) for ms in delays)
    served = Passthrough(Path(source), (read_ms, open_ms, getattr_ms), serial=mode == "serial")
    kept = {"attr_timeout": float(keep_s), "entry_timeout": float(keep_s)}
    mfusepy.FUSE(served, mount, foreground=True, ro=True, direct_io=True, **kept)


if __name__ == "__main__":
    main()
