"""Names for what threads are blocked on: each file, directory or peer becomes one numbered `Place`.

A data set may have millions of files and a report names one, so crowded directories are folded:
once more than `CROWD` entries of a directory were seen, new ones count for the directory itself
(its path then ends in `/`). At most `MAX_PLACES` are ever given out, however long the job runs.
"""

import posixpath

from fuelline.record.samplers.mounts import UNKNOWN, Mount
from fuelline.schema.names import encodable
from fuelline.schema.redaction import redact
from fuelline.schema.run.samples import Place

CROWD = 64
MAX_PLACES = 4096
_MAX_REMEMBERED = 8192


class Places:
    """Gives out place numbers; 0 stands for "unknown or none"."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], int] = {}
        self._entries: dict[str, set[str]] = {}
        self._crowded: set[str] = set()
        self._remembered: dict[str, int] = {}
        self._new: list[Place] = []

    def find(self, path: str) -> int | None:
        """The number of a path that was asked for before, without the price of folding."""
        return self._remembered.get(path)

    def add_file(self, path: str, mount: Mount, *, asked: str = "") -> int:
        """The number for an absolute path on a mount; `asked` is the name that led to it."""
        number = self._number(self._fold(path, mount), mount)
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[asked or path] = number
        return number

    def add_peer(self, name: str) -> int:
        """The number for the other end of a socket, for example `tcp 10.0.0.7:2049`."""
        known = self._ids.get((name, "socket"))
        if known is None and len(self._ids) >= MAX_PLACES:
            name = name.partition(" ")[0]
        return self._number(name, Mount(0, "", "", "", "socket", ""))

    def drain(self) -> list[Place]:
        """The places that were new since the last call."""
        new, self._new = self._new, []
        return new

    def _number(self, path: str, mount: Mount) -> int:
        key = (path, mount.fstype)
        if key not in self._ids:
            self._ids[key] = len(self._ids) + 1
            # A name of any bytes must not cost the journal the frame that it stands in.
            path, point = redact(encodable(path)), redact(encodable(mount.point))
            self._new.append(Place(self._ids[key], path, point, mount.fstype, mount.device))
        return self._ids[key]

    def _fold(self, path: str, mount: Mount) -> str:
        """The path, or the topmost crowded directory above it within its mount."""
        if (path, mount.fstype) in self._ids:
            return path
        if len(self._ids) >= MAX_PLACES:
            return _as_directory(mount.point) if mount is not UNKNOWN else "/"
        folded = path
        child, directory = path, posixpath.dirname(path)
        while child not in {mount.point, "/", ""}:
            if self._is_crowded(directory, child):
                folded = _as_directory(directory)
            child, directory = directory, posixpath.dirname(directory)
        return folded

    def _is_crowded(self, directory: str, child: str) -> bool:
        if directory in self._crowded:
            return True
        entries = self._entries.setdefault(directory, set())
        entries.add(child)
        if len(entries) <= CROWD:
            return False
        self._crowded.add(directory)
        del self._entries[directory]
        return True


def _as_directory(path: str) -> str:
    return path.rstrip("/") + "/"
