"""A pack as a server of paths: the root it was packed from, and what lay below."""

from __future__ import annotations

import errno
import os
import stat

from fuelline.fix.adapters.shards import Child, Entry, Pack
from fuelline.schema.shards import LARGE_BYTES

__all__ = ["PackServer"]


class PackServer:
    """Answers for the packed folder; names that it does not know are left to the file system."""

    def __init__(self, folder: str) -> None:
        self._pack = Pack(folder)
        self.root = self._pack.root

    def _find(self, path: str) -> Entry | None:
        return self._pack.find(path[len(self.root) + 1 :])

    def open(self, path: str) -> int | None:
        """The content of a packed file."""
        entry = self._find(path)
        if entry is None:
            return None
        if stat.S_ISDIR(entry.mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return self._pack.open(entry)

    def read(self, path: str) -> bytes | None:
        """The same for a small file, without a descriptor."""
        entry = self._find(path)
        if entry is None or stat.S_ISDIR(entry.mode) or entry.size >= LARGE_BYTES:
            return None
        return self._pack.read(entry)

    def status(self, path: str) -> os.stat_result | None:
        """As it was when it was packed."""
        entry = self._find(path)
        return None if entry is None else self._pack.status(entry)

    def list(self, path: str) -> list[Child] | None:
        """The names in a packed folder."""
        entry = self._find(path)
        if entry is None:
            return None
        if not stat.S_ISDIR(entry.mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return self._pack.list(path[len(self.root) + 1 :])
