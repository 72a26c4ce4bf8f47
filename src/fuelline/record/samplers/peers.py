"""Who is at the other end of a TCP socket, from the kernel's tables.

The kernel walks all of its hash buckets for one reading, some milliseconds of CPU however few
sockets there are. So one reading serves all sockets of a network namespace, and the next one
comes half a minute later at the earliest, however many new sockets there are meanwhile. Readings
that do not find what they were made for come less and less often.
"""

import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from fuelline.record.samplers.procfs import find_link, find_text

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
