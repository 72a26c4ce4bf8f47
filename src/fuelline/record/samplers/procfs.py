"""Reading /proc cheaply: kept descriptors, one pread a sample, small parsers.

A kept descriptor belongs to the process it was opened for: once that process is gone every read
fails with ESRCH, even when the kernel has given its pid to someone else. So nothing here can mix
up two processes. Price: 1 to 5 us a read, against 10 us and more with open and close.
"""

import os
from collections.abc import Callable

from msgspec import Struct

VANISHED = (FileNotFoundError, ProcessLookupError, NotADirectoryError)
"""What the kernel answers for a process or thread that has ended."""
REFUSED = (PermissionError,)

CHUNK_BYTES = 16 * 1024
NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Read = Callable[[int], bytes]
"""Descriptor in, content out. The seam at which tests refuse permission."""


def read_kept(fd: int) -> bytes:
    """The content of a small /proc file from its beginning."""
    return os.pread(fd, CHUNK_BYTES, 0)


def read_kept_whole(fd: int) -> bytes:
    """The content of a /proc table, which the kernel hands out in pieces of a page."""
    content = os.pread(fd, CHUNK_BYTES, 0)
    while piece := os.pread(fd, CHUNK_BYTES, len(content)):
        content += piece
    return content


def open_kept(path: str, dir_fd: int | None = None) -> int:
    """A descriptor that no child process inherits."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)


def read_once(path: str, dir_fd: int | None = None) -> bytes:
    """All of a file, however long; for what is read rarely."""
    fd = open_kept(path, dir_fd)
    try:
        chunks = []
        while chunk := os.read(fd, CHUNK_BYTES):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)


def find_text(path: str, dir_fd: int | None = None) -> str | None:
    """The content of a file as text, or None if it is absent or refused."""
    try:
        return read_once(path, dir_fd).decode("utf-8", "replace")
    except OSError:
        return None


def list_numbers(directory: str | int) -> list[int]:
    """The entries of a /proc directory that are numbers: processes, threads, descriptors."""
    names = os.listdir(directory)  # noqa: PTH208  pathlib takes no descriptor, and costs 5 times more
    return [int(name) for name in names if name.isdigit()]


def find_link(path: str, dir_fd: int | None = None) -> str | None:
    """Where a symbolic link leads, or None if it is none or refused."""
    try:
        return os.readlink(path, dir_fd=dir_fd)
    except OSError:
        return None


class Stat(Struct, frozen=True, gc=False):
    """The fields of /proc/PID/stat that we use."""

    name: str
    state: str
    ppid: int
    major_faults: int
    cpu_ns: int
    reaped_cpu_ns: int
    """CPU of children that have ended and were waited for."""
    threads: int
    start_ticks: int
    rss_bytes: int

    @property
    def has_ended(self) -> bool:
        """A zombie leader may still have running threads; then the process lives."""
        return self.state in "ZX" and self.threads <= 1


def parse_stat(content: bytes) -> Stat:
    """Parse `4711 (my (odd) name) S 1 4711 ...`: the name may hold anything, parentheses too."""
    head, _, tail = content.rpartition(b")")
    fields = tail.split()
    return Stat(
        name=head.partition(b"(")[2].decode("utf-8", "replace"),
        state=fields[0].decode(),
        ppid=int(fields[1]),
        major_faults=int(fields[9]),
        cpu_ns=(int(fields[11]) + int(fields[12])) * NS_PER_TICK,
        reaped_cpu_ns=(int(fields[13]) + int(fields[14])) * NS_PER_TICK,
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def find_field(content: bytes, name: str) -> int | None:
    """The number behind `name` at the beginning of a line; cheaper than parsing all lines."""
    at = content.find(b"\n" + name.encode())
    words = content[at : at + 80].split(None, 2) if at >= 0 else []
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None


def parse_fields(content: bytes) -> dict[str, int]:
    """Parse lines of `name: 12` or `name 12`, as in io, meminfo and memory.stat; skip others."""
    found = {}
    for line in content.splitlines():
        words = line.replace(b":", b" ").split()
        if len(words) >= 2 and words[1].lstrip(b"-").isdigit():
            found[words[0].decode("utf-8", "replace")] = int(words[1])
    return found
