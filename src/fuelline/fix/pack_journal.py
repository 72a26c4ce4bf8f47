"""What of a pack is safe already, so that an attempt that was cut short can go on.

Entries are written some thousand at a time, after the shards that they speak of were synced. The
next attempt takes over what the journal has and starts new shards: nothing that was written after
the last sync is ever trusted. One attempt at a time holds the journal's lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, BinaryIO

from fuelline.fix.pack_index import Packed
from fuelline.schema.errors import RefusedError
from fuelline.schema.shards import JOURNAL

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

SYNC_EVERY = 5000
"""Files between two syncs: what is read again at most after a power cut."""

MOST_OPEN = 200
"""Shards at a time; the usual limit is 1,024 descriptors a process."""


class Journal:
    """The journal of one attempt."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target / JOURNAL
        self.entries: list[Packed] = []
        self._new: list[Packed] = []
        self._held: list[BinaryIO] = []
        self._done: list[BinaryIO] = []
        self.next_shard = 0

    def __enter__(self) -> Journal:  # noqa: PYI034 - typing.Self is of 3.11
        self._file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise RefusedError(
                f"Another process packs into {self._target} right now. Nothing was done."
            ) from None
        self._read()
        return self

    def _read(self) -> None:
        """Take over what is whole; a line that was cut off ends it."""
        self._file.seek(0)
        good = 0
        for line in self._file:
            try:
                name, shard, offset, size, mtime_ns, mode, digest = json.loads(line)
            except ValueError:
                break
            good += len(line.encode())
            self.entries.append(
                Packed(name, shard, offset, size, mtime_ns, mode, bytes.fromhex(digest))
            )
        os.ftruncate(self._file.fileno(), good)
        self._file.seek(0, os.SEEK_END)
        kept = {each.shard for each in self.entries}
        for path in self._target.glob("shard-*"):
            number = int(path.name.partition("-")[2])
            self.next_shard = max(self.next_shard, number + 1)
            if number not in kept:
                path.unlink()

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
