"""Compares a pack with its source: all bytes, or a few files quickly before a job starts."""

from __future__ import annotations

import os
import random
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fuelline.fix.adapters.shards import Entry, Pack
from fuelline.fix.packing import scan
from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

SPOT_S = 2.0
"""A look at the source before a job: enough for all of some 100,000 files on a local disk, and too
short to annoy."""
_BLOCK = 64
"""Files that are looked at side by side: a disk has them side by side too."""
_CHUNK = 1 << 20


def open_pack(folder: Path) -> Pack:
    """A pack, or a sentence that says why it is none."""
    try:
        return Pack(str(folder))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder} is not a whole pack ({error}). Nothing was started. "
            f"`fuelline pack DATA_DIR -o {folder}` makes one, or goes on with it."
        ) from None


def check_pack(
    source: Path, folder: Path, tell: Callable[[int, int], None]
) -> list[tuple[str, str]]:
    """Names that differ, and how."""
    pack = open_pack(folder)
    differs: list[tuple[str, str]] = []
    packed: set[str] = set()
    for number in range(pack.count):
        entry = pack.entry(number)
        if stat.S_ISREG(entry.mode):
            name = pack.name(entry)
            packed.add(name)
            why = _compare(source / name, pack, entry)
            if why is not None:
                differs.append((name, why))
        tell(number + 1, pack.count)
    differs += [
        (found.name, "not in the pack")
        for found in scan(source, [])
        if stat.S_ISREG(found.status.st_mode) and found.name not in packed
    ]
    return differs


def _compare(path: Path, pack: Pack, entry: Entry) -> str | None:
    try:
        descriptor = pack.open(entry)
        with path.open("rb") as file, os.fdopen(descriptor, "rb") as packed:
            while True:
                ours, theirs = packed.read(_CHUNK), file.read(_CHUNK)
                if ours != theirs:
                    return "other bytes"
                if not ours:
                    return None
    except OSError as error:
        return error.strerror or str(error)


class Spot(NamedTuple):
    """What a quick look at the source showed."""

    differs: list[str]
    """Names whose size or time is another, or that are gone."""
    looked: int
    of: int


def spot_check(folder: Path, seconds: float = SPOT_S) -> Spot:
    """Compare size and time with the source for so long; nothing if the source is gone.

    All files if there is time. If not, blocks of them in another disorder every time, so that what
    one start missed the next may find.
    """
    pack = open_pack(folder)
    root = Path(pack.root)
    if not root.is_dir():
        return Spot([], 0, pack.count)
    until = time.monotonic() + seconds
    starts = list(range(0, pack.count, _BLOCK))
    random.shuffle(starts)
    differs, looked = [], 0
    for start in starts:
        numbers = range(start, min(start + _BLOCK, pack.count))
        differs += [name for at in numbers if (name := _differs(root, pack, at)) is not None]
        looked += len(numbers)
        if time.monotonic() > until:
            break
    return Spot(sorted(differs), looked, pack.count)


def _differs(root: Path, pack: Pack, number: int) -> str | None:
    entry = pack.entry(number)
    if not stat.S_ISREG(entry.mode):
        return None
    name = pack.name(entry)
    return None if _is_same(root / name, entry) else name


def _is_same(path: Path, entry: Entry) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns)
