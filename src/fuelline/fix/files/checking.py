"""Compares a pack with its source: all bytes, or a few files quickly before a job starts."""

from __future__ import annotations

import contextlib
import os
import random
import re
import stat
import time
import zlib
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fuelline.fix.files.compared import NAME_BYTES, ComparedFiles
from fuelline.fix.files.packing import scan
from fuelline.fix.files.shards import Block, DamagedPackError, Entry, Pack, is_plain_name
from fuelline.schema.errors import InputError
from fuelline.schema.files import is_own_folder, open_below
from fuelline.schema.shards import CHECKSUM_AT, HEADER, LARGE_BYTES, SHARD, SLOT
from fuelline.store.own_folder import list_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPOT_S = 2.0
"""A look at the source before a job: enough for all of some 100,000 files on a local disk, and too
short to annoy."""
_BLOCK = 64
"""Files that are looked at side by side: a disk has them side by side too."""
_CHUNK = 1 << 20
RECORD_S = 30 * 86400
"""How long it counts that a large file was compared: disks lose bytes, too, while nobody writes."""
LONGEST_RUN = 1000
"""Used slots side by side: a search may go through all of them, at 1.5 us each. Our tables are at
most half full, so that k / 2 names are expected to belong in k slots; that it is k has a chance of
exp(-0.19 k) (0.19 = ln 2 - 1/2). In a table of n slots the longest run has about ln(n) / 0.19: 75
for a million names, 110 for a billion; 1000 do not happen. Names that count up are no worse under
crc32: up to half a million, named in 13 ways, the longest run was 60."""
_RECORD = re.compile(f"[0-9a-f]{{{2 * NAME_BYTES}}}")


@contextlib.contextmanager
def open_pack(folder: Path, compared: ComparedFiles | None = None) -> Iterator[Pack]:
    """A pack that is whole, as far as can be said without reading its shards; or a sentence."""
    try:
        pack = Pack(str(folder), compared)
    except OSError as error:
        raise _refusal(folder, error) from None
    with contextlib.closing(pack):
        try:
            _check_index(pack)
        except OSError as error:
            raise _refusal(folder, error) from None
        yield pack


def _refusal(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"{folder} is not a whole pack ({error.strerror or error}). Nothing was started. "
        "`fuelline pack DATA_DIR -o DIR` makes a new one, or completes one that was interrupted."
    )


def _check_index(pack: Pack) -> None:
    """Its checksum, then every name and place in it: less than a second for a million files."""
    if pack.version > 1 and _sum_index(pack) != pack.checksum:
        raise DamagedPackError("its index is damaged: its checksum is wrong", pack.folder)
    shards = _Shards(pack)
    for entries, names in pack.blocks():
        ends = list(accumulate(entries.name_bytes, initial=entries.name_at[0]))
        if entries.name_at != ends[:-1]:
            raise DamagedPackError("its names are not in order", pack.folder)
        _check_names(pack, names, [end - ends[0] for end in ends])
        for mode in set(entries.mode):
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise DamagedPackError(
                    "it has an entry that is neither a file nor a folder", pack.folder
                )
        shards.check(entries)
    _check_slots(pack)


def _check_names(pack: Pack, names: bytes, ends: list[int]) -> None:
    """Whether one leads out of its folder; without cutting them apart where none can."""
    lasts = {names[end - 1 : end] for end in ends[1:]}
    firsts = {names[start : start + 1] for start in ends[:-1]}
    is_harmless = not any(sign in names for sign in (b"\0", b"./", b"//"))
    if is_harmless and b"/" not in firsts and not {b"/", b"."} & lasts:
        return
    for start, end in pairwise(ends):
        name = names[start:end]
        if name and not all(map(is_plain_name, name.split(b"/"))):
            raise DamagedPackError(f"it has a name that points outside it: {name!a}", pack.folder)


def _sum_index(pack: Pack) -> int:
    head = bytearray(pack.pread(HEADER.size, 0))
    head[CHECKSUM_AT : CHECKSUM_AT + 4] = bytes(4)
    total = zlib.crc32(head)
    for at in range(HEADER.size, pack.index_bytes, _CHUNK):
        total = zlib.crc32(pack.pread(min(_CHUNK, pack.index_bytes - at), at), total)
    return total


class _Shards:
    """The files with the contents, and how long they are."""

    def __init__(self, pack: Pack) -> None:
        self._folder = pack.folder
        self._sizes: dict[int, int] = {}

    def check(self, entries: Block) -> None:
        """Every content is within its shard, which is a file of its own if the content is large."""
        sizes, is_file = self._sizes, stat.S_ISREG
        rows = zip(entries.mode, entries.shard, entries.offset, entries.size, strict=True)
        for mode, shard, offset, size in rows:
            if not is_file(mode):
                continue
            if shard not in sizes:
                sizes[shard] = self._measure(shard)
            is_alone = not offset and size == sizes[shard]
            if offset + size > sizes[shard] or (size >= LARGE_BYTES and not is_alone):
                reason = f"{SHARD.format(shard)} has a different size than the index says"
                raise DamagedPackError(reason, self._folder)

    def _measure(self, shard: int) -> int:
        descriptor = open_below(self._folder, SHARD.format(shard))
        size_bytes = os.fstat(descriptor).st_size
        os.close(descriptor)
        return size_bytes


def _check_runs(pack: Pack, is_used: bytes) -> None:
    if b"\1" * (LONGEST_RUN + 1) in is_used:
        raise DamagedPackError("names are crowded together in its hash table", pack.folder)


def _check_slots(pack: Pack) -> None:
    """As many as there are entries, and empty ones among them, so that every search ends soon."""
    filled = total = 0
    first = near = b""  # whether slots are used, at the beginning and just before
    for at in range(0, pack.slots, _CHUNK):
        many = min(_CHUNK, pack.slots - at)
        found = memoryview(pack.pread(many * SLOT.size, pack.slots_at + at * SLOT.size)).cast("I")
        numbers = found.tolist()
        if max(numbers) > pack.count:
            raise DamagedPackError("its hash table points outside the index", pack.folder)
        filled += many - numbers.count(0)
        total += sum(numbers)
        near += bytes(map(bool, numbers))
        first = first or near[:LONGEST_RUN]
        _check_runs(pack, near)
        near = near[-LONGEST_RUN:]
    _check_runs(pack, near + first)  # the last slot is followed by the first
    if filled != pack.count or total != pack.count * (pack.count + 1) // 2:
        raise DamagedPackError("its hash table does not hold every name exactly once", pack.folder)


def open_records(folder: Path | None, run: str = "", *, believes: bool = True) -> ComparedFiles:
    """What was compared on this machine by this user; old records are deleted first."""
    if folder is None:
        return ComparedFiles()
    try:
        if is_own_folder(folder):
            for name in list_own(folder, _RECORD):
                age_ns = time.time_ns() - (folder / name).lstat().st_mtime_ns
                if abs(age_ns) > RECORD_S * 10**9:
                    (folder / name).unlink()
    except OSError:
        pass  # another process was faster, or none can be written there either
    return ComparedFiles(str(folder.absolute()), run, makes_folder=True, believes=believes)


def compare_large(
    folder: Path, compared: ComparedFiles, tell: Callable[[int, int, int], None]
) -> None:
    """Compare with their checksums the files that nobody has compared as they are now.

    Of those that are too large for each process of the job to do so. `tell` gets how many files
    there are, the bytes compared and the bytes in all; nothing if there is nothing to do. A damaged
    one is an InputError.
    """
    try:
        with contextlib.closing(Pack(str(folder), compared)) as pack:
            found = list(pack.find_uncompared())
            total = sum(entry.size for entry in found)
            done = 0

            def add(piece_bytes: int) -> None:
                nonlocal done
                done += piece_bytes
                tell(len(found), done, total)

            if found:
                add(0)
            for entry in found:
                os.close(pack.open(entry, add))
    except OSError as error:
        raise _refusal(folder, error) from None


def check_pack(
    source: Path,
    folder: Path,
    tell: Callable[[int, int], None],
    compared: ComparedFiles | None = None,
) -> list[tuple[str, str]]:
    """Names that differ, and how; what was read of large files is `compared`."""
    differs: list[tuple[str, str]] = []
    packed: set[str] = set()
    with open_pack(folder, compared) as pack:
        for number, (raw, entry) in enumerate(pack.rows(0), start=1):
            if stat.S_ISREG(entry.mode):
                name = os.fsdecode(raw)
                packed.add(name)
                why = _compare(source / name, pack, entry)
                if why is not None:
                    differs.append((name, why))
            tell(number, pack.count)
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


class SourceCheck(NamedTuple):
    """What a quick look at the source showed."""

    differs: list[str]
    """Names whose size or time has changed, or that are gone."""
    looked: int
    of: int


def spot_check(folder: Path, seconds: float = SPOT_S) -> SourceCheck:
    """Compare size and time with the source for so long; nothing if the source is gone.

    All files if there is time. If not, blocks of them in another disorder every time, so that what
    one start missed the next may find.
    """
    with open_pack(folder) as pack:
        root = Path(pack.root)
        if not root.is_dir():
            return SourceCheck([], 0, pack.count)
        return _look_around(root, pack, time.monotonic() + seconds)


def _look_around(root: Path, pack: Pack, until_s: float) -> SourceCheck:
    starts = list(range(0, pack.count, _BLOCK))
    random.shuffle(starts)
    differs, looked = [], 0
    for start in starts:
        numbers = range(start, min(start + _BLOCK, pack.count))
        differs += [name for at in numbers if (name := _differs(root, pack, at)) is not None]
        looked += len(numbers)
        if time.monotonic() > until_s:
            break
    return SourceCheck(sorted(differs), looked, pack.count)


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
