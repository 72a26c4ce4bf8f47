"""Mounts that a network, or a daemon of somebody's, answers for. Standard library only."""

import os
import re

__all__ = ["find_slow_mounts", "is_slow", "is_slow_here", "is_slow_type"]

SLOW_TYPES = (
    "nfs", "cifs", "smb", "lustre", "gpfs", "ceph", "beegfs", "glusterfs", "9p", "afs", "virtiofs",
    "fuse",
)  # fmt: skip
"""Beginnings of the names of file systems that are reached over a network, or through FUSE."""
NO_DATA = ("fusectl", "fuse.lxcfs", "fuse.portal", "fuseblk")
"""Not those: settings, and local disks of other systems."""


def find_slow_mounts(mountinfo: str) -> list[str]:
    """Mount points of file systems that are not local."""
    return [point for point, kind in _parse(mountinfo) if is_slow_type(kind)]


def is_slow(folder: str, mountinfo: str) -> bool:
    """Whether a folder, or the nearest above it that there is, lies on one of them."""
    path = os.path.realpath(folder)
    nearest, kind = "", ""
    for point, its_kind in _parse(mountinfo):
        # Of mounts at one point the last one lies on top.
        if len(point) >= len(nearest) and f"{path}/".startswith(point.rstrip("/") + "/"):
            nearest, kind = point, its_kind
    return is_slow_type(kind)


def is_slow_here(folder: str) -> bool:
    """The same by this process's own mounts; False if they are not to be read."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:  # noqa: PTH123 - no pathlib: light
            return is_slow(folder, os.fsdecode(file.read()))
    except OSError:
        return False


def is_slow_type(kind: str) -> bool:
    """By the name of a file system."""
    return kind.startswith(SLOW_TYPES) and kind not in NO_DATA


def _parse(mountinfo: str) -> list[tuple[str, str]]:
    r"""Points and types of `27 1 254:0 / /my\040data rw,relatime shared:1 - ext4 /dev/vda rw`."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) >= 5 and kinds:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
            found.append((point, kinds[0]))
    return found
