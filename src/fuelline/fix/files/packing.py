"""Makes a pack: many files into shards, with an index; resumable, and the source only read.

Order of safety: content to the shard, entry to the journal, at the end everything to the disk, then
each file read back and compared with what the source gave, then the source looked at once more, and
only then the index under its name. A folder without an index is no pack, so a half-made one
is never read. A file that changes while it is read is read again; one that does not come to rest
is an error.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from fuelline.fix.files.compared import ComparedFiles, find_state
from fuelline.fix.files.pack_index import Packed, write_index
from fuelline.fix.files.pack_journal import PackJournal, shard_sizes
from fuelline.schema.errors import InputError, RefusedError, UsageError
from fuelline.schema.files import open_below
from fuelline.schema.shards import INDEX, LARGE_BYTES, SHARD, SHARD_BYTES, VERSION, Digest
from fuelline.schema.units import size
from fuelline.store.own_folder import PACK_MARKER, NotOursError, take_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TRIES = 3
"""A file that is written to while we read it may be at rest when we read it again."""
_CHUNK = 1 << 20
MOST_NAMED = 3


@dataclass
class PackOutcome:
    """What was packed."""

    files: int = 0
    resumed: int = 0
    """Of these, taken over from an earlier attempt."""
    content_bytes: int = 0
    pack_bytes: int = 0
    skipped: list[str] = field(default_factory=list)
    """Neither files nor folders: sockets, pipes, devices."""


@dataclass(frozen=True)
class SourceEntry:
    """One file or folder of the source."""

    name: str
    status: os.stat_result


def pack(
    source: Path,
    target: Path,
    report: Callable[[int, int], None],
    compared: ComparedFiles | None = None,
) -> PackOutcome:
    """Pack a folder; `report` gets files done and files in all, again and again.

    Large files that were read back are `compared`, and need not be before a job.
    """
    outcome, compared = PackOutcome(), ComparedFiles() if compared is None else compared
    _take(source, target)
    found = list(scan(source, outcome.skipped))
    if not any(stat.S_ISREG(each.status.st_mode) for each in found):
        raise InputError(f"{source} has no file in it. Nothing was packed.")
    _check_room(target, found)
    with PackJournal(target) as journal:
        packer = _Packer(source, target, journal, compared)
        for position, each in enumerate(found, start=1):
            outcome.resumed += packer.add(each)
            report(position, len(found))
        packer.close()
        entries = packer.entries
        packer.read_back(lambda done: report(done, len(entries)))
        _check_source(source, entries)
        write_index(target, str(source), entries)
        journal.remove()
    outcome.files = sum(stat.S_ISREG(each.mode) for each in entries)
    outcome.content_bytes = sum(each.size for each in entries)
    outcome.pack_bytes = sum(shard_sizes(target).values())
    outcome.pack_bytes += (target / INDEX).stat().st_size
    return outcome


def _take(source: Path, target: Path) -> None:
    """The folder is ours, and stays ours: whoever could write to it could change what is read."""
    if (target / INDEX).exists():
        raise UsageError(
            f"{target} is already a pack, or has an `index` of something else. Nothing was done. "
            f"`fuelline pack {source} -o {target} --check` compares the two; to make it anew, "
            "delete it or name another folder."
        )
    try:
        take_folder(target, PACK_MARKER)
    except NotOursError as reason:
        raise RefusedError(
            f"{target} cannot be packed into: {reason}. Nothing was packed. Name it with -o."
        ) from None
    except OSError as error:
        raise RefusedError(
            f"{target} cannot be written ({error.strerror}). Nothing was packed. Name another "
            "folder with -o."
        ) from None


def scan(source: Path, skipped: list[str]) -> Iterator[SourceEntry]:
    """Everything below a folder, links followed, itself first, in the order of names."""
    yield SourceEntry("", source.stat())
    yield from _scan_below(source, "", skipped, {_identity(source.stat())})


def _scan_below(
    source: Path, name: str, skipped: list[str], above: set[tuple[int, int]]
) -> Iterator[SourceEntry]:
    with os.scandir(source / name) as listing:
        children = sorted(listing, key=lambda child: child.name)
    for child in children:
        below = f"{name}/{child.name}" if name else child.name
        try:
            status = child.stat()
        except FileNotFoundError:
            skipped.append(f"{below} (a link to nothing)")
            continue
        if stat.S_ISREG(status.st_mode):
            yield SourceEntry(below, status)
        elif stat.S_ISDIR(status.st_mode) and _identity(status) not in above:
            yield SourceEntry(below, status)
            yield from _scan_below(source, below, skipped, above | {_identity(status)})
        else:
            skipped.append(below)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _check_room(target: Path, found: list[SourceEntry]) -> None:
    status = os.statvfs(target)
    free = status.f_bavail * status.f_frsize
    held = sum(shard_sizes(target).values())
    needed = sum(each.status.st_size for each in found if stat.S_ISREG(each.status.st_mode))
    if free + held < needed * 1.02:
        raise RefusedError(
            f"{target} has {size(free)} free, and the pack takes {size(needed)}. "
            "Nothing was packed. Name a folder on a larger disk with -o."
        )


class _Packer:
    """Appends files to shards."""

    def __init__(
        self, source: Path, target: Path, journal: PackJournal, compared: ComparedFiles
    ) -> None:
        self._source = source
        self._target = target
        self._journal = journal
        self._compared = compared
        self._known = {each.name: each for each in journal.entries}
        self._next = journal.next_shard
        self._shard: tuple[int, BinaryIO] | None = None
        self.entries: list[Packed] = []
        self._resumed: set[str] = set()

    def add(self, found: SourceEntry) -> bool:
        """Pack one file or note a folder; True if an earlier attempt has done so already."""
        status = found.status
        if stat.S_ISDIR(status.st_mode):
            entry = Packed(found.name, 0, 0, 0, status.st_mtime_ns, status.st_mode, b"\0" * 8)
            self.entries.append(entry)
            return False
        known = self._known.get(found.name)
        if known is not None and self._is_good(known, status):
            self.entries.append(known)
            self._resumed.add(known.name)
            return True
        entry = self._copy(found)
        self._journal.append(entry)
        self.entries.append(entry)
        return False

    def _is_good(self, known: Packed, status: os.stat_result) -> bool:
        """Of the source as it is now, and its bytes are still what the journal says."""
        is_same = (known.size, known.mtime_ns) == _version(status)
        return is_same and self._is_right(known)

    def read_back(self, report: Callable[[int], None]) -> None:
        """What was written now; the rest was read when it was resumed.

        What differs from what the source gave must not become a pack.
        """
        unread = (each for each in self.entries if each.name not in self._resumed)
        for position, each in enumerate(unread, start=1):
            if stat.S_ISREG(each.mode) and not self._is_right(each):
                raise RefusedError(
                    f"{self._target} does not give back what was written to it ({each.name}). "
                    "There is no pack. Check that disk."
                )
            report(position)

    def _is_right(self, entry: Packed) -> bool:
        """Whether the shard has the content that the source gave."""
        with os.fdopen(open_below(self._target, SHARD.format(entry.shard)), "rb") as file:
            began_ns, state = time.time_ns(), find_state(file.fileno(), VERSION, entry.digest)
            if _digest(file, entry) != entry.digest:
                return False
            is_whole = state.size_bytes == entry.size >= LARGE_BYTES
            if is_whole and find_state(file.fileno(), VERSION, entry.digest) == state:
                self._compared.add(state, file.fileno(), began_ns)
            return True

    def _copy(self, found: SourceEntry) -> Packed:
        for _ in range(TRIES):
            entry = self._try_copy(found)
            if entry is not None:
                return entry
        raise InputError(
            f"{self._source / found.name} changed each of {TRIES} times that it was read. There is "
            "no pack yet; what was done is kept. Let the data come to rest and run it again."
        )

    def _try_copy(self, found: SourceEntry) -> Packed | None:
        try:
            with (self._source / found.name).open("rb", buffering=0) as file:
                before = os.fstat(file.fileno())
                shard, output = self._choose_shard(before.st_size)
                offset = output.tell()
                digest, copied = _copy_bytes(file, output)
                after = os.fstat(file.fileno())
        except PermissionError as error:
            raise InputError(
                f"{error.filename} cannot be read ({error.strerror}). There is no pack yet; what "
                "was done is kept. Make it readable and run it again."
            ) from None
        if _version(before) != _version(after) or copied != before.st_size:
            output.seek(offset)
            output.truncate()
            return None
        return Packed(found.name, shard, offset, copied, before.st_mtime_ns, before.st_mode, digest)

    def _choose_shard(self, size_bytes: int) -> tuple[int, BinaryIO]:
        is_large = size_bytes >= LARGE_BYTES
        if self._shard is not None and not is_large:
            if self._shard[1].tell() + size_bytes <= SHARD_BYTES:
                return self._shard
            self._journal.release(self._shard[1])
        number, self._next = self._next, self._next + 1
        output = (self._target / SHARD.format(number)).open("xb")  # never over another file
        self._journal.hold(output)
        if is_large:
            self._journal.release(output)
        else:
            self._shard = number, output
        return number, output

    def close(self) -> None:
        """Everything to the disk; shards that hold nothing, after a retry, are removed."""
        self._journal.flush()
        used = {each.shard for each in self.entries if not _is_folder(each)}
        for number in shard_sizes(self._target).keys() - used:
            (self._target / SHARD.format(number)).unlink()


def _copy_bytes(file: BinaryIO, output: BinaryIO) -> tuple[bytes, int]:
    digest, copied = Digest(), 0
    while chunk := file.read(_CHUNK):
        output.write(chunk)
        digest.update(chunk)
        copied += len(chunk)
    return digest.digest(), copied


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _digest(file: BinaryIO, entry: Packed) -> bytes:
    """Of the content that the shard has for this entry."""
    digest = Digest()
    file.seek(entry.offset)
    left = entry.size
    while left and (chunk := file.read(min(left, _CHUNK))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.digest()


def _check_source(source: Path, entries: list[Packed]) -> None:
    """What was added, removed or changed while we packed."""
    packed = {each.name: (each.size, each.mtime_ns) for each in entries if not _is_folder(each)}
    now = {
        found.name: _version(found.status)
        for found in scan(source, [])
        if stat.S_ISREG(found.status.st_mode)
    }
    differs = sorted(name for name in packed.keys() | now if packed.get(name) != now.get(name))
    if differs:
        raise InputError(
            f"{source} changed while it was packed: {len(differs)} files, such as "
            f"{', '.join(differs[:MOST_NAMED])}. There is no pack yet; what was done is kept. Run "
            "it again: only what changed is read again."
        )


def _is_folder(entry: Packed) -> bool:
    return stat.S_ISDIR(entry.mode)
