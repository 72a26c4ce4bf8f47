"""Which mount a path or descriptor is on, from /proc/PID/mountinfo, and symlinks on the way.

Nothing here touches a remote filesystem: a hung NFS server must not hang the observer, and a slow
metadata server must not get questions from us. Links are followed on local filesystems only.
"""

import os
import posixpath
import re
from dataclasses import dataclass

from fuelline.record.samplers.procfs import find_link, find_text

_LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "overlay"}
    | {"tmpfs", "ramfs", "rootfs", "squashfs", "erofs"}
)
_MAX_LINKS = 40
"""The kernel gives up on a path after as many (path_resolution(7))."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    id: int
    device: str
    """major:minor"""
    root: str
    """The directory of the filesystem that is mounted here."""
    point: str
    fstype: str
    options: str
    """Options of the superblock; for cgroup v1 they name the controllers."""

    @property
    def is_local(self) -> bool:
        """Whether asking this filesystem about a link costs nothing worth speaking of."""
        return self.fstype in _LOCAL


UNKNOWN = Mount(0, "", "", "", "", "")


def parse_mountinfo(text: str) -> list[Mount]:
    r"""Parse `27 1 254:0 / /my\040data rw,relatime shared:1 - ext4 /dev/vda rw`."""
    mounts = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, source = left.split(), right.split()
        if len(fields) < 6 or not source or not fields[0].isdigit():
            continue
        mounts.append(
            Mount(
                id=int(fields[0]),
                device=fields[2],
                root=_unescape(fields[3]),
                point=_unescape(fields[4]),
                fstype=source[0],
                options=source[2] if len(source) > 2 else "",
            )
        )
    return mounts


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)


class MountTable:
    """The mounts of one process's mount namespace."""

    def __init__(self, source: str = "/proc/self/mountinfo") -> None:
        self._source = source
        self._links: dict[str, str | None] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the mounts again; what was known of links is forgotten."""
        self.mounts = parse_mountinfo(find_text(self._source) or "")
        self._by_id = {mount.id: mount for mount in self.mounts}
        self._by_point = {mount.point: mount for mount in self.mounts}
        self._links.clear()

    def find_by_id(self, mount_id: int) -> Mount | None:
        """The mount that fdinfo's `mnt_id` names."""
        return self._by_id.get(mount_id)

    def find_by_path(self, path: str) -> Mount:
        """The mount with the longest prefix of an absolute path; a later one hides an earlier."""
        while path not in self._by_point and path not in {"", "/"}:
            path = path.rpartition("/")[0] or "/"
        return self._by_point.get(path, UNKNOWN)

    def resolve_links(self, path: str) -> str:
        """The path with the links of its directories followed, as far as they are local."""
        for _ in range(_MAX_LINKS):
            followed = self._follow_first_link(path)
            if followed is None:
                return path
            path = followed
        return path

    def _follow_first_link(self, path: str) -> str | None:
        at = path.find("/", 1)
        while at != -1:
            prefix, rest = path[:at], path[at:]
            if not self.find_by_path(prefix).is_local:
                return None
            target = self._read_link(prefix)
            if target is not None:
                return os.path.normpath(posixpath.join(posixpath.dirname(prefix), target) + rest)
            at = path.find("/", at + 1)
        return None

    def _read_link(self, prefix: str) -> str | None:
        if prefix not in self._links:
            if len(self._links) > 4096:
                self._links.clear()
            self._links[prefix] = find_link(prefix)
        return self._links[prefix]
