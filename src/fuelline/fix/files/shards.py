"""Serves the files of a packed data set under the paths that they had before.

The index is read where it is needed, not loaded: a million files cost no memory, and an index that
is cut short under a running job is an error to be caught, where a map of it would be a SIGBUS. A
small file is copied from its shard into an anonymous file in memory, so that whoever opens it has a
real descriptor: `mmap`, `fileno()` and C code work as ever. Reads go through `pread`, so forked
workers may share descriptors. Standard library only.

A pack may have been damaged, or made up: every number from the index is checked before it is used,
a search ends, no link is followed, and bytes are given only if their checksum is right: those of
a small file at every reading, those of a large one when it is opened, unless it was compared before
and is as it was then (`compared`). What is not as it should be is a `DamagedPackError`.
"""
# ruff: noqa: PTH118 - a guest loads as little as it can; no pathlib

from __future__ import annotations

import errno
import os
import stat
import time
import zlib
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from fuelline.fix.files.compared import ComparedFiles, FileState, find_state
from fuelline.fix.files.held_file import hold_in_memory
from fuelline.fix.files.holes import PIECE_BYTES, count_hole, extend_by_zeros
from fuelline.schema.files import open_below, refuse_holes_in
from fuelline.schema.shards import (
    ENTRY,
    HEADER,
    INDEX,
    LARGE_BYTES,
    MAGIC,
    OLDEST,
    SHARD,
    SLOT,
    VERSION,
    hash_name,
    round_up,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Child", "DamagedPackError", "Entry", "Pack"]

AHEAD_BYTES = 256 << 10
"""What is read around a file if the whole set fits in memory: one request instead of dozens. As
much as a disk of 250 MB/s gives in the millisecond that a request takes anyway."""
AHEAD_SHARE = 0.5
"""Of the memory that is available: a set up to this size is read in such blocks."""


FIRST_BATCH, MOST_BATCH = 8, 512
"""Entries that are read at once where many are wanted: few at first, since few may be."""
BLOCK = 1 << 16
NAMES_BYTES = 16 << 20
"""Of names that are held at once: those of a block have 4 MB where they are 60 bytes long."""
MOST_NAME_BYTES = 4096
"""PATH_MAX: nothing with a longer path could have been packed."""
TRIES = 3
"""A file that is touched while it is compared may be at rest when it is compared again."""
_SHARD_PREFIX = SHARD.partition("{")[0]
_NEAR_SLOTS = 8
"""Slots that are read at once: few names are further than that from where they should be."""


class DamagedPackError(OSError):
    """The pack cannot give what was asked for."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(errno.EIO, reason, path)


class Child(NamedTuple):
    """One name in a folder."""

    name: str
    status: os.stat_result


Children = list[Child]


class Entry(NamedTuple):
    """One file or folder of the index."""

    name_at: int
    offset: int
    size: int
    mtime_ns: int
    crc: int
    digest_rest: int
    shard: int
    mode: int
    name_bytes: int

    def digest(self) -> bytes:
        """As `Digest` makes it; of version 1 eight bytes of BLAKE2b."""
        return self.crc.to_bytes(4, "little") + self.digest_rest.to_bytes(4, "little")


class Block(NamedTuple):
    """Many entries, a list for each field that is checked before a job starts."""

    name_at: list[int]
    offset: list[int]
    size: list[int]
    shard: list[int]
    mode: list[int]
    name_bytes: list[int]


class Pack:
    """A packed data set, open for reading."""

    def __init__(self, folder: str, compared: ComparedFiles | None = None) -> None:
        self.folder = folder
        self.device = 0
        """That its files seem to be on."""
        self._index = open_below(folder, INDEX)
        self._descriptors: dict[int, int] = {}
        self._blocks: set[tuple[int, int]] | None = None
        self._compared = ComparedFiles() if compared is None else compared
        try:
            self._read_header()
            self._prepare_ahead()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back its descriptors; a job keeps its packs open to its end."""
        os.close(self._index)
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _read_header(self) -> None:
        found = os.fstat(self._index)
        self.index_bytes = found.st_size
        self._first_inode = 1 << 62 | zlib.crc32(b"%d %d" % (found.st_dev, found.st_ino)) << 30
        if self.index_bytes < HEADER.size:
            raise self._damage("its index is cut short")
        refuse_holes_in(self._index, INDEX)
        magic, self.version, self.checksum, self.count, self.slots, names_bytes, root_bytes = (
            HEADER.unpack(self.pread(HEADER.size, 0))
        )
        if magic != MAGIC:
            raise self._damage("its index is not that of a pack")
        if not OLDEST <= self.version <= VERSION:
            raise self._damage(
                f"it is of version {self.version}, and only versions up to {VERSION} are known here"
            )
        if root_bytes > MOST_NAME_BYTES:
            raise self._damage("the path that it was packed from is longer than a path can be")
        self._entries_at = round_up(HEADER.size + root_bytes)
        self.slots_at = self._entries_at + self.count * ENTRY.size
        self._names_at = self.slots_at + self.slots * SLOT.size
        self._names_bytes = names_bytes
        if self._names_at + names_bytes != self.index_bytes:
            raise self._damage("its index has a different size than it says")
        if not self.count or self.slots <= self.count or self.slots & (self.slots - 1):
            raise self._damage("its index has no room for its entries")
        root = self.pread(root_bytes, HEADER.size)
        self.root = os.fsdecode(root)
        if root[:1] != b"/" or b"\0" in root:
            raise self._damage("the path that it was packed from is not absolute")

    def _damage(self, reason: str) -> DamagedPackError:
        return DamagedPackError(reason, self.folder)

    def pread(self, size_bytes: int, at: int) -> bytes:
        """So many bytes of the index."""
        found = os.pread(self._index, size_bytes, at)
        if len(found) != size_bytes:
            raise self._damage("its index is cut short")
        return found

    def _prepare_ahead(self) -> None:
        total, most = self.index_bytes, AHEAD_SHARE * _available_bytes()
        for name in os.listdir(self.folder):  # noqa: PTH208
            if name.startswith(_SHARD_PREFIX):
                total += os.lstat(os.path.join(self.folder, name)).st_size
        if total <= most:
            self._blocks = set()

    def find(self, name: str) -> Entry | None:
        """By the path relative to the root."""
        wanted = os.fsencode(name)
        slot = hash_name(wanted) & (self.slots - 1)
        for number in self._numbers(slot):
            if not number:
                return None
            entry = self.entry(number - 1)
            if entry.name_bytes == len(wanted) and self._name(entry) == wanted:
                if not (stat.S_ISREG(entry.mode) or stat.S_ISDIR(entry.mode)):
                    raise self._damage("it has an entry that is neither a file nor a folder")
                return entry
        raise self._damage("its hash table has no empty slot")

    def _numbers(self, slot: int) -> Iterator[int]:
        """What is in the slots from here on, no more of them than there are names and one."""
        left = self.count + 1
        while left > 0:
            many = min(_NEAR_SLOTS, left, self.slots - slot)
            found = self.pread(many * SLOT.size, self.slots_at + slot * SLOT.size)
            for (number,) in SLOT.iter_unpack(found):
                yield number
            slot = (slot + many) & (self.slots - 1)
            left -= many

    def entry(self, number: int) -> Entry:
        """By its number in the order of names."""
        if not 0 <= number < self.count:
            raise self._damage("its hash table points outside the index")
        return Entry(*ENTRY.unpack(self.pread(ENTRY.size, self._entries_at + number * ENTRY.size)))

    def _name(self, entry: Entry) -> bytes:
        return self._names(entry.name_at, entry.name_bytes)

    def _names(self, at: int, size_bytes: int) -> bytes:
        if at + size_bytes > self._names_bytes:
            raise self._damage("a name lies outside the index")
        return self.pread(size_bytes, self._names_at + at)

    def rows(self, at: int) -> Iterator[tuple[bytes, Entry]]:
        """Entries with their names from a number on, in their order; more and more at a time."""
        many = FIRST_BATCH
        while at < self.count:
            many = min(many, self.count - at)
            found = self.pread(many * ENTRY.size, self._entries_at + at * ENTRY.size)
            entries = list(map(Entry._make, ENTRY.iter_unpack(found)))
            self._check_lengths(entry.name_bytes for entry in entries)
            first = entries[0].name_at
            names = self._names(first, sum(entry.name_bytes for entry in entries))
            place = 0
            for entry in entries:
                if entry.name_at != first + place:
                    raise self._damage("its names are not in order")
                yield names[place : place + entry.name_bytes], entry
                place += entry.name_bytes
            at += many
            many = min(2 * many, MOST_BATCH)

    def _check_lengths(self, lengths: Iterable[int]) -> None:
        if max(lengths) > MOST_NAME_BYTES:
            raise self._damage("it has a name that is longer than a path can be")

    def blocks(self) -> Iterator[tuple[Block, bytes]]:
        """All entries with their names, side by side: a tenth of the time of one by one.

        Fewer of them at a time where their names are long.
        """
        at, many = 0, BLOCK
        while at < self.count:
            many = min(many, self.count - at)
            view = memoryview(self.pread(many * ENTRY.size, self._entries_at + at * ENTRY.size))
            lengths = view.cast("H")[23 :: ENTRY.size // 2].tolist()
            self._check_lengths(lengths)
            if sum(lengths) > NAMES_BYTES and many > 1:
                many //= 2
                continue
            longs, words, shorts = view.cast("Q"), view.cast("I"), view.cast("H")
            block = Block(
                name_at=longs[0 :: ENTRY.size // 8].tolist(),
                offset=longs[1 :: ENTRY.size // 8].tolist(),
                size=longs[2 :: ENTRY.size // 8].tolist(),
                shard=words[10 :: ENTRY.size // 4].tolist(),
                mode=shorts[22 :: ENTRY.size // 2].tolist(),
                name_bytes=lengths,
            )
            yield block, self._names(block.name_at[0], sum(lengths))
            at += many

    def name(self, entry: Entry) -> str:
        """The path relative to the root."""
        return os.fsdecode(self._name(entry))

    def status(self, entry: Entry) -> os.stat_result:
        """As the file system told it when the set was packed; the owner is whoever asks."""
        seconds, mtime = entry.mtime_ns // 10**9, entry.mtime_ns / 1e9
        times = {"st_atime": mtime, "st_mtime": mtime, "st_ctime": mtime}
        times |= {f"{key}_ns": entry.mtime_ns for key in tuple(times)}
        inode = self._first_inode + entry.name_at + entry.name_bytes  # each has a name but the root
        return os.stat_result(
            (
                *(entry.mode, inode, self.device, 1, os.getuid(), os.getgid(), entry.size),
                *[seconds] * 3,
            ),
            times,
        )

    def list(self, name: str) -> Children:
        """The names in a folder."""
        prefix = os.fsencode(name) + b"/" if name else b""
        at: int | None = self._bisect(prefix) if prefix else 1  # the first entry is the root itself
        found: Children = []
        while at is not None:
            at = self._list_some(at, prefix, found)
        return found

    def _list_some(self, start: int, prefix: bytes, found: Children) -> int | None:
        """Add names up to one that is deeper; where to go on behind that, or None at the end."""
        for at, (full, entry) in enumerate(self.rows(start), start):
            if not full.startswith(prefix):
                return None
            child, slash, _ = full[len(prefix) :].partition(b"/")
            if slash:  # below a folder that was listed: on to what follows, as "0" follows "/"
                return max(at + 1, self._bisect(prefix + child + b"0"))
            if is_plain_name(child):
                found.append(Child(os.fsdecode(child), self.status(entry)))
        return None

    def _bisect(self, wanted: bytes) -> int:
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._name(self.entry(middle)) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def find_uncompared(self) -> Iterator[Entry]:
        """Files of a size that is recorded, of which there is no record as they are now.

        Where none is that large, 40 ms for a million entries.
        """
        least = self._compared.recorded_bytes
        for at in range(0, self.count, BLOCK):
            many = min(BLOCK, self.count - at)
            view = memoryview(self.pread(many * ENTRY.size, self._entries_at + at * ENTRY.size))
            sizes = view.cast("Q")[2 :: ENTRY.size // 8].tolist()
            if max(sizes) <= least:
                continue
            for number in (number for number, size in enumerate(sizes, at) if size > least):
                entry = self.entry(number)
                if stat.S_ISREG(entry.mode) and not self._is_compared(entry):
                    yield entry

    def _is_compared(self, entry: Entry) -> bool:
        descriptor = open_below(self.folder, SHARD.format(entry.shard))
        try:
            return self._compared.has(self._find_state(descriptor, entry), descriptor)
        finally:
            os.close(descriptor)

    def open(self, entry: Entry, tell: Callable[[int], None] | None = None) -> int:
        """A descriptor of the content, at its beginning, that is the caller's to close.

        `tell` gets the bytes of each piece that was compared.
        """
        if entry.size >= LARGE_BYTES:
            return self._open_large(entry, tell)
        return hold_in_memory(self.read(entry))

    def _open_large(self, entry: Entry, tell: Callable[[int], None] | None) -> int:
        """Where it lies, once its bytes are known to be right; those of this very descriptor."""
        descriptor = open_below(self.folder, SHARD.format(entry.shard))
        try:
            self._check_large(descriptor, entry, tell)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check_large(
        self, descriptor: int, entry: Entry, tell: Callable[[int], None] | None
    ) -> None:
        """Raise unless it was right in the state that it has now."""
        name = SHARD.format(entry.shard)
        for _ in range(TRIES):
            began_ns, state = time.time_ns(), self._find_state(descriptor, entry)
            if self._compared.has(state, descriptor):
                return
            if not self._is_right_large(descriptor, entry, tell):
                self._compared.forget(state, descriptor)
                raise self._damage(f"{name} has other bytes than were packed")
            if self._find_state(descriptor, entry) == state:
                self._compared.add(state, descriptor, began_ns)
                return
        raise self._damage(f"{name} changes while it is read")

    def _find_state(self, descriptor: int, entry: Entry) -> FileState:
        state = find_state(descriptor, self.version, entry.digest())
        if state.size_bytes != entry.size or entry.offset:
            name = SHARD.format(entry.shard)
            raise self._damage(f"{name} has a different size than the index says")
        return state

    def _is_right_large(
        self, descriptor: int, entry: Entry, tell: Callable[[int], None] | None
    ) -> bool:
        """The job reads it next, from memory then. It is left at its beginning."""
        if self.version == 1:
            refuse_holes_in(descriptor, SHARD.format(entry.shard))  # its hash has no short cut
        at, crc, slow = 0, 0, blake2b(digest_size=8)
        while at < entry.size:
            holes = 0 if self.version == 1 else count_hole(descriptor, at)
            piece = b"" if holes else os.pread(descriptor, PIECE_BYTES, at)
            if holes:
                crc = extend_by_zeros(crc, holes)
            elif self.version == 1:
                slow.update(piece)
            else:
                crc = zlib.crc32(piece, crc)
            done_bytes = holes * PIECE_BYTES or len(piece)
            if not done_bytes:
                return False  # it was cut short meanwhile
            at += done_bytes
            if tell is not None:
                tell(done_bytes)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return slow.digest() == entry.digest() if self.version == 1 else crc == entry.crc

    def read(self, entry: Entry) -> bytes:
        """The content of a small file."""
        shard = self._descriptors.get(entry.shard)
        if shard is None:
            shard = open_below(self.folder, SHARD.format(entry.shard))
            known = self._descriptors.setdefault(entry.shard, shard)
            if known is not shard:  # another thread was faster
                os.close(shard)
                shard = known
        if entry.size >= LARGE_BYTES or entry.offset >> 62:
            raise self._damage("a file has an impossible size or offset")
        if self._blocks is not None:
            self._read_ahead(shard, entry)
        content = os.pread(shard, entry.size, entry.offset)
        if not self._is_right(entry, content):
            raise self._damage(f"{SHARD.format(entry.shard)} has other bytes than were packed")
        return content

    def _is_right(self, entry: Entry, content: bytes) -> bool:
        """29 us for 100 kB, 108 in a pack of version 1 (docs/pack.md)."""
        if len(content) != entry.size:
            return False
        if self.version == 1:
            return blake2b(content, digest_size=8).digest() == entry.digest()
        return zlib.crc32(content) == entry.crc

    def _read_ahead(self, shard: int, entry: Entry) -> None:
        """Ask once for the block that the file is in; its neighbours are wanted soon, too."""
        block = (entry.shard, entry.offset // AHEAD_BYTES)
        if self._blocks is not None and block not in self._blocks:
            self._blocks.add(block)
            start = block[1] * AHEAD_BYTES
            os.posix_fadvise(shard, start, AHEAD_BYTES, os.POSIX_FADV_WILLNEED)


def is_plain_name(name: bytes) -> bool:
    """Whether a part of a path is one: no way up or out of it."""
    return name not in (b"", b".", b"..") and b"\0" not in name


def _available_bytes() -> int:
    """Memory that can be had without swapping; 0 if the kernel does not say."""
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
