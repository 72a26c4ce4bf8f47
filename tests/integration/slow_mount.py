"""A FUSE filesystem with one file, `slow`, of which each read takes a while. For tests."""

import errno
import stat
import sys
import time

import mfusepy

SIZE_BYTES = 64 * 1024 * 1024


class SlowFile(mfusepy.Operations):
    """Answers quickly about metadata and slowly about content."""

    use_ns = True

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path == "/slow":
            return {"st_mode": stat.S_IFREG | 0o444, "st_nlink": 1, "st_size": SIZE_BYTES}
        raise mfusepy.FuseOSError(errno.ENOENT)

    def open(self, path: str, flags: int) -> int:
        return 1

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        time.sleep(self._delay_s)
        return bytes(size)


if __name__ == "__main__":
    mfusepy.FUSE(SlowFile(float(sys.argv[2])), sys.argv[1], foreground=True, nothreads=True)
