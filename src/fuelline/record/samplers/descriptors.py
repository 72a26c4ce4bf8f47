"""What a descriptor of the job is: a file on a mount, a pipe, a socket and its peer, a device.

Only links under /proc/PID are read, never the files themselves, so that a hung filesystem cannot
hang the observer. A descriptor number is reused for every file a job opens: nothing is kept by
number, only by the name it leads to.

Also here: who is at the other end of a TCP socket, from the kernel's tables.

The kernel walks all of its hash buckets for one reading, some milliseconds of CPU however few
sockets there are. So one reading serves all sockets of a network namespace, and the next one
comes half a minute later at the earliest, however many new sockets there are meanwhile. Readings
that do not find what they were made for come less and less often.
"""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from fuelline.record.samplers.mounts import MountTable
from fuelline.record.samplers.places import Places
from fuelline.record.samplers.procfs import find_link, find_text
from fuelline.record.samplers.tree import Process

_DELETED = " (deleted)"
_MAX_SOCKETS = 4096


class DescriptorKind(Enum):
    """What kind of thing a descriptor leads to."""

    FILE = auto()
    PIPE = auto()  # also eventfd and AF_UNIX sockets: another process of this machine
    SOCKET = auto()
    DEVICE = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Target:
    """What a descriptor leads to, and its place."""

    sort: DescriptorKind
    place: int = 0


UNKNOWN = Target(DescriptorKind.UNKNOWN)
_PIPE = Target(DescriptorKind.PIPE)
_DEVICE = Target(DescriptorKind.DEVICE)


class Descriptors:
    """Follows descriptors and paths of the job's processes to places."""

    def __init__(self, places: Places, mounts: MountTable) -> None:
        self._places = places
        self._mounts = mounts
        self._foreign: dict[str, MountTable] = {}
        self._sockets: dict[str, Target] = {}
        self._peers = Peers()
        self._own_namespace = find_link("/proc/self/ns/mnt")

    def follow(self, process: Process, fd: int) -> Target:
        """What descriptor `fd` of a process leads to at this moment."""
        link = find_link(f"fd/{fd}", process.dir_fd)
        if link is None:
            return UNKNOWN
        if link.startswith("/"):
            return self._file(process, link, fd)
        if link.startswith("socket:"):
            return self._socket(process.pid, fd, link)
        if link.startswith(("pipe:", "anon_inode:[eventfd]")):
            return _PIPE
        return _DEVICE if link.startswith("anon_inode:") else UNKNOWN

    def follow_if_file(self, process: Process, fd: int) -> Target:
        """The same for files alone; looking up a socket's peer has its price."""
        link = find_link(f"fd/{fd}", process.dir_fd)
        is_file = link is not None and link.startswith("/")
        return self._file(process, link, fd) if link and is_file else UNKNOWN

    def follow_path(self, process: Process, directory_fd: int, path: str) -> Target:
        """The file that a path argument names, relative to a directory descriptor or the cwd."""
        if not path.startswith("/"):
            base = "cwd" if directory_fd < 0 else f"fd/{directory_fd}"
            above = find_link(base, process.dir_fd)
            if above is None:
                return UNKNOWN
            path = f"{above}/{path}"
        return self._file(process, os.path.normpath(path), None)

    def _file(self, process: Process, path: str, fd: int | None) -> Target:
        path = path.removesuffix(_DELETED)
        if path.startswith("/dev/") and not path.startswith("/dev/shm/"):
            return _DEVICE
        if path.startswith("/memfd:"):
            return Target(DescriptorKind.FILE)
        known = self._places.find(path)
        if known is not None:
            return Target(DescriptorKind.FILE, known)
        mounts = self._table_of(process)
        mount = None if fd is None else mounts.find_by_id(_mount_id(process, fd))
        if mount is None:
            resolved = mounts.resolve_links(path) if mounts is self._mounts else path
            mount = mounts.find_by_path(resolved)
            return Target(DescriptorKind.FILE, self._places.add_file(resolved, mount, asked=path))
        return Target(DescriptorKind.FILE, self._places.add_file(path, mount))

    def _table_of(self, process: Process) -> MountTable:
        """The mounts as the process sees them: it may live in a mount namespace of its own."""
        namespace = find_link("ns/mnt", process.dir_fd)
        if namespace is None or namespace == self._own_namespace:
            return self._mounts
        if namespace not in self._foreign:
            self._foreign[namespace] = MountTable(f"/proc/{process.pid}/mountinfo")
        return self._foreign[namespace]

    def _socket(self, pid: int, fd: int, link: str) -> Target:
        """A socket whose peer is not known yet is looked up again the next time."""
        known = self._sockets.get(link)
        if known is not None:
            return known
        try:
            protocol = os.getxattr(f"/proc/{pid}/fd/{fd}", "system.sockprotoname")
        except OSError:
            return self._keep(link, Target(DescriptorKind.SOCKET))
        name = protocol.rstrip(b"\0").decode("ascii", "replace")
        if name.startswith("UNIX"):
            return self._keep(link, _PIPE)
        label = name.removesuffix("v6").lower()
        if not name.startswith("TCP"):
            return self._keep(link, Target(DescriptorKind.SOCKET, self._places.add_peer(label)))
        peer = self._peers.find(pid, link[len("socket:[") : -1])
        if peer is None:
            return Target(DescriptorKind.SOCKET, self._places.add_peer(label))
        return self._keep(
            link, Target(DescriptorKind.SOCKET, self._places.add_peer(f"{label} {peer}"))
        )

    def _keep(self, link: str, target: Target) -> Target:
        if len(self._sockets) >= _MAX_SOCKETS:
            self._sockets.clear()
        self._sockets[link] = target
        return target


def _mount_id(process: Process, fd: int) -> int:
    """`mnt_id` of /proc/PID/fdinfo/N, or -1."""
    for line in (find_text(f"fdinfo/{fd}", process.dir_fd) or "").splitlines():
        if line.startswith("mnt_id:"):
            return int(line.split()[1])
    return -1


_REST_NS = 30_000_000_000
_TABLES = ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6"))


class _Table(NamedTuple):
    due_ns: int
    """When it may be read again."""
    rest_ns: int
    addresses: dict[str, str]


_NO_TABLE = _Table(0, 0, {})


class Peers:
    """Remote addresses by the inode of a socket."""

    def __init__(
        self,
        read: Callable[[str], str | None] = find_text,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._read = read
        self._clock_ns = clock_ns
        self._tables: dict[str | None, _Table] = {}

    def find(self, pid: int, inode: str) -> str | None:
        """The address, or None if it is not known (yet)."""
        namespace = find_link(f"/proc/{pid}/ns/net")
        table = self._tables.get(namespace, _NO_TABLE)
        now_ns = self._clock_ns()
        if inode not in table.addresses and now_ns >= table.due_ns:
            addresses = self._read_tables(pid)
            rest_ns = _REST_NS if inode in addresses else max(_REST_NS, 2 * table.rest_ns)
            table = _Table(now_ns + rest_ns, rest_ns, addresses)
            self._tables[namespace] = table
        return table.addresses.get(inode)

    def _read_tables(self, pid: int) -> dict[str, str]:
        """Lines are `sl local remote st ... inode ...`."""
        found = {}
        for family, table in _TABLES:
            for line in (self._read(f"/proc/{pid}/net/{table}") or "").splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9:
                    found[fields[9]] = parse_address(family, fields[2])
        return found


def parse_address(family: int, text: str) -> str:
    """Parse `0100007F:0801` (words in host byte order, here little endian) to `127.0.0.1:2049`."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    host = socket.inet_ntop(family, b"".join(words))
    return f"{host}:{int(port, 16)}" if family == socket.AF_INET else f"[{host}]:{int(port, 16)}"
