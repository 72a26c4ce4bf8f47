"""A FUSE passthrough with delays, read-only unless it is given one for writing.

    python -m bench.zoo.faults.slow_mount SOURCE MOUNT READ OPEN GETATTR WRITE MODE KEEP_S

The first four are delays in ms. In mode `parallel` every call waits its own delay, like a distant
server. In mode `serial` one call is served at a time, like a metadata server that many clients
share. The kernel keeps names and attributes for KEEP_S seconds.
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
        self, source: Path, delays_ms: tuple[float, float, float, float], *, serial: bool
    ) -> None:
        self._source = source
        times_s = (ms / 1000 for ms in delays_ms)
        self._read_s, self._open_s, self._getattr_s, self._write_s = times_s
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
        return os.open(self._real(path), flags & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR))

    def create(self, path: str, mode: int, fi: object = None) -> int:
        """A new file."""
        return os.open(self._real(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def mkdir(self, path: str, mode: int) -> int:
        """A new folder."""
        Path(self._real(path)).mkdir(mode)
        return 0

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        """Content, late."""
        self._delay(self._write_s)
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        """Cut a file."""
        os.truncate(self._real(path), length)
        return 0

    def unlink(self, path: str) -> int:
        """Remove a file."""
        Path(self._real(path)).unlink()
        return 0

    def rmdir(self, path: str) -> int:
        """Remove a folder."""
        Path(self._real(path)).rmdir()
        return 0

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
    read_ms, open_ms, getattr_ms, write_ms = (float(ms) for ms in delays)
    times_ms = (read_ms, open_ms, getattr_ms, write_ms)
    served = Passthrough(Path(source), times_ms, serial=mode == "serial")
    kept = {"attr_timeout": float(keep_s), "entry_timeout": float(keep_s)}
    mfusepy.FUSE(served, mount, foreground=True, ro=not write_ms, direct_io=True, **kept)


if __name__ == "__main__":
    main()
