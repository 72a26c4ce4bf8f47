"""What of a pack is safe already, so that an attempt that was cut short can go on.

Entries are written some thousand at a time, after the shards that they speak of were synced. The
next attempt takes over what the journal has and starts new shards: nothing that was written after
the last sync is ever trusted. One attempt at a time holds the journal's lock.

It is believed only in a folder with our marker that is ours alone; and even there an entry counts
only if its place is within its shard. Whether the bytes are right is asked when it is taken over.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from typing import TYPE_CHECKING, BinaryIO

from fuelline.fix.files.pack_index import Packed
from fuelline.schema.errors import RefusedError
from fuelline.schema.shards import JOURNAL, SHARD
from fuelline.store.own_folder import list_own

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

SYNC_EVERY = 5000
"""Files between two syncs: what is read again at most after a power cut."""

_SHARD = re.compile(r"shard-(\d{5}|[1-9]\d{5,8})")
_DIGITS = slice(len("shard-"), None)

MOST_OPEN = 200
"""Shards at a time; the usual limit is 1,024 descriptors a process."""


class PackJournal:
    """The journal of one attempt."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target / JOURNAL
        self.entries: list[Packed] = []
        self._new: list[Packed] = []
        self._held: list[BinaryIO] = []
        self._done: list[BinaryIO] = []
        self.next_shard = 0

    def __enter__(self) -> PackJournal:  # noqa: PYI034 - typing.Self is of 3.11
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        self._file = os.fdopen(
            descriptor,
            "a+",
            encoding="utf-8",
            errors="backslashreplace",  # what is not UTF-8 is no JSON then
        )
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise RefusedError(
                f"Another process is packing into {self._target}. Nothing was done."
            ) from None
        self._read()
        return self

    def _read(self) -> None:
        """Take over what is whole; a line that was cut off, or makes no sense, ends it."""
        sizes = shard_sizes(self._target)
        self._file.seek(0)
        good = 0
        for line in self._file:
            entry = _parse(line)
            if entry is None or entry.offset + entry.size > sizes.get(entry.shard, -1):
                break
            good += len(line.encode())
            self.entries.append(entry)
        os.ftruncate(self._file.fileno(), good)
        self._file.seek(0, os.SEEK_END)
        kept = {each.shard for each in self.entries}
        self.next_shard = max(_shard_numbers(self._target), default=-1) + 1
        for number in sizes.keys() - kept:
            (self._target / SHARD.format(number)).unlink()

    def hold(self, shard: BinaryIO) -> None:
        """A shard that was begun: it is synced with every flush until it is released."""
        if len(self._held) >= MOST_OPEN:
            self.flush()
        self._held.append(shard)

    def release(self, shard: BinaryIO) -> None:
        """A shard that will not grow any more."""
        self._done.append(shard)

    def append(self, entry: Packed) -> None:
        """Note a file whose content was written."""
        self._new.append(entry)
        if len(self._new) >= SYNC_EVERY:
            self.flush()

    def flush(self) -> None:
        """Content first, then what speaks of it."""
        for shard in self._held:
            shard.flush()
            os.fdatasync(shard.fileno())
        for each in self._new:
            row = [*each[:-1], each.digest.hex()]
            self._file.write(json.dumps(row) + "\n")
        self._new.clear()
        for shard in self._done:
            shard.close()
            self._held.remove(shard)
        self._done.clear()
        self._file.flush()
        os.fdatasync(self._file.fileno())

    def remove(self) -> None:
        """The index speaks for itself now."""
        self._path.unlink()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep what was done, also after Ctrl-C; an empty journal is no trace worth keeping."""
        if kind is not None:
            self.flush()
        for shard in self._held:
            shard.close()
        self._file.close()


def shard_sizes(target: Path) -> dict[int, int]:
    """Bytes by number, of the shards that are ours."""
    names = list_own(target, _SHARD)
    return {int(name[_DIGITS]): (target / name).lstat().st_size for name in names}


def _shard_numbers(target: Path) -> list[int]:
    """Of everything that has the name of a shard, whatever it is: it is in the way."""
    names = (path.name for path in target.iterdir())
    return [int(name[_DIGITS]) for name in names if _SHARD.fullmatch(name)]


def _parse(line: str) -> Packed | None:
    try:
        name, shard, offset, size, mtime_ns, mode, digest = json.loads(line)
        entry = Packed(name, shard, offset, size, mtime_ns, mode, bytes.fromhex(digest))
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = entry[1:-1]
    if not isinstance(name, str) or not all(type(each) is int for each in numbers):
        return None
    is_possible = min(shard, offset, size) >= 0 and stat.S_ISREG(mode) and len(entry.digest) == 8
    return entry if is_possible else None
