"""Serves the files of a packed data set under the paths that they had before.

The index is mapped, not loaded: processes share its pages, and a million files cost no memory of
their own. A small file is copied from its shard into an anonymous file in memory, so that whoever
opens it has a real descriptor: `mmap`, `fileno()` and C code work as ever. Reads go through
`pread`, so forked workers may share descriptors. Standard library only.
"""
# ruff: noqa: PTH118 - a guest loads as little as it can; no pathlib

from __future__ import annotations

import mmap
import os
from typing import NamedTuple

from fuelline.schema.shards import (
    ENTRY,
    HEADER,
    INDEX,
    LARGE_BYTES,
    MAGIC,
    SHARD,
    SLOT,
    VERSION,
    hash_name,
    round_up,
)

__all__ = ["Child", "Pack"]

AHEAD_BYTES = 256 << 10
"""What is read around a file if the whole set fits in memory: one request instead of dozens. As
much as a disk of 250 MB/s gives in the millisecond that a request takes anyway."""
AHEAD_SHARE = 0.5
"""Of the memory that is available: a set up to this size is read in such blocks."""


class Child(NamedTuple):
    """One name in a folder."""

    name: str
    status: os.stat_result


class Entry(NamedTuple):
    """One file or folder of the index."""

    name_at: int
    offset: int
    size: int
    mtime_ns: int
    digest_high: int
    digest_low: int
    shard: int
    mode: int
    name_bytes: int


class Pack:
    """A packed data set, open for reading."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, INDEX), "rb") as file:  # noqa: PTH123
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, version, _, self.count, self._slots, _, root_bytes = HEADER.unpack_from(self._map)
        if magic != MAGIC or version != VERSION:
            raise ValueError(f"{folder} is not a pack of this version")
        start = HEADER.size
        self.root = os.fsdecode(self._map[start : start + root_bytes])
        self._entries_at = round_up(start + root_bytes)
        self._slots_at = self._entries_at + self.count * ENTRY.size
        self._names_at = self._slots_at + self._slots * SLOT.size
        self._descriptors: dict[int, int] = {}
        self._blocks: set[tuple[int, int]] | None = None
        self._prepare_ahead()

    def _prepare_ahead(self) -> None:
        names = os.listdir(self.folder)  # noqa: PTH208
        sizes = [os.stat(os.path.join(self.folder, name)).st_size for name in names]  # noqa: PTH116
        if sum(sizes) <= AHEAD_SHARE * _available_bytes():
            self._blocks = set()

    def find(self, name: str) -> Entry | None:
        """By the path relative to the root."""
        wanted = os.fsencode(name)
        slot = hash_name(wanted) & (self._slots - 1)
        while True:
            (number,) = SLOT.unpack_from(self._map, self._slots_at + slot * SLOT.size)
            if not number:
                return None
            entry = self.entry(number - 1)
            if self._name(entry) == wanted:
                return entry
            slot = (slot + 1) & (self._slots - 1)

    def entry(self, number: int) -> Entry:
        """By its number in the order of names."""
        return Entry(*ENTRY.unpack_from(self._map, self._entries_at + number * ENTRY.size))

    def _name(self, entry: Entry) -> bytes:
        start = self._names_at + entry.name_at
        return self._map[start : start + entry.name_bytes]

    def name(self, entry: Entry) -> str:
        """The path relative to the root."""
        return os.fsdecode(self._name(entry))

    def status(self, entry: Entry) -> os.stat_result:
        """As the file system told it when the set was packed; the owner is whoever asks."""
        seconds, mtime = entry.mtime_ns // 10**9, entry.mtime_ns / 1e9
        times = {"st_atime": mtime, "st_mtime": mtime, "st_ctime": mtime}
        times |= {f"{key}_ns": entry.mtime_ns for key in tuple(times)}
        inode = entry.name_at + 1
        return os.stat_result(
            (entry.mode, inode, 0, 1, os.getuid(), os.getgid(), entry.size, *[seconds] * 3), times
        )

    def list(self, name: str) -> list[Child]:
        """The names in a folder."""
        prefix = os.fsencode(name) + b"/" if name else b""
        at = self._bisect(prefix) if prefix else 1  # the first entry is the root itself
        found = []
        while at < self.count:
            entry = self.entry(at)
            full = self._name(entry)
            if not full.startswith(prefix):
                break
            child, slash, _ = full[len(prefix) :].partition(b"/")
            if slash:  # below a folder that was listed: on to what follows, as "0" follows "/"
                at = self._bisect(prefix + child + b"0")
                continue
            found.append(Child(os.fsdecode(child), self.status(entry)))
            at += 1
        return found

    def _bisect(self, wanted: bytes) -> int:
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._name(self.entry(middle)) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def open(self, entry: Entry) -> int:
        """A descriptor of the content, at its beginning, that is the caller's to close."""
        if entry.size >= LARGE_BYTES:
            return os.open(self._shard_path(entry.shard), os.O_RDONLY | os.O_CLOEXEC)
        content = self.read(entry)
        descriptor = os.memfd_create("fuelline", os.MFD_CLOEXEC)
        try:
            if content:
                os.write(descriptor, content)
                os.lseek(descriptor, 0, os.SEEK_SET)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def read(self, entry: Entry) -> bytes:
        """The content of a small file."""
        shard = self._descriptors.get(entry.shard)
        if shard is None:
            shard = os.open(self._shard_path(entry.shard), os.O_RDONLY | os.O_CLOEXEC)
            known = self._descriptors.setdefault(entry.shard, shard)
            if known is not shard:  # another thread was faster
                os.close(shard)
                shard = known
        if self._blocks is not None:
            self._read_ahead(shard, entry)
        content = os.pread(shard, entry.size, entry.offset)
        if len(content) != entry.size:
            raise OSError(
                5, "a shard is shorter than its index says", self._shard_path(entry.shard)
            )
        return content

    def _read_ahead(self, shard: int, entry: Entry) -> None:
        """Ask once for the block that the file is in; its neighbours are wanted soon, too."""
        block = (entry.shard, entry.offset // AHEAD_BYTES)
        if self._blocks is not None and block not in self._blocks:
            self._blocks.add(block)
            start = block[1] * AHEAD_BYTES
            os.posix_fadvise(shard, start, AHEAD_BYTES, os.POSIX_FADV_WILLNEED)

    def _shard_path(self, number: int) -> str:
        return os.path.join(self.folder, SHARD.format(number))


def _available_bytes() -> int:
    """Memory that can be had without swapping; 0 if the kernel does not say."""
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
