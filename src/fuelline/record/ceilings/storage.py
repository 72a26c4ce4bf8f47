"""Reading, writing and metadata of one disk, cold and warm, without root.

Cold: the pages were dropped by `posix_fadvise(DONTNEED)`, and that is checked, since some file
systems ignore it. What the file system itself keeps of names and inodes cannot be dropped without
root, so cold small files are cold in content only; the words say so.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from typing import TYPE_CHECKING

from fuelline.record.ceilings.pace import time_rate, time_rate_of_threads
from fuelline.schema.ceilings import Ceiling
from fuelline.schema.readings import Missing, Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fuelline.record.ceilings.place import Place

CHUNK = 1 << 20
SYNCED = 8
"""Chunks that reach the disk together: 8 MiB, as a checkpoint's writer would flush."""
PAGE = 4096
SMALL_BYTES = 16 * 1024
"""A thumbnail or a text snippet; ImageNet's JPEGs are seven times as large."""
MOST_SMALL = 4000
THREADS = 16
"""As many requests in flight as 16 loader workers have."""


def probe_storage(place: Place, tell: Callable[[str], None]) -> list[Ceiling]:
    """All measurements of the disk, in an order in which none warms the next one up."""
    found: list[Ceiling] = []

    def add(group: str, name: str, what: str, signal: Signal) -> None:
        found.append(Ceiling(group=group, name=name, what=what, signal=signal))

    tell("writing")
    large = place.folder / "large"
    add("storage", "sequential_write", "write, large pieces, to the disk", _write(large, place))
    tell("reading large pieces")
    for state, signal in _read_large(large, place):
        add("storage", f"sequential_read_{state}", f"read, large pieces, {state}", signal)
    tell("random reads")
    for threads in (1, THREADS):
        what = f"random reads of 4 KiB, cold, {threads} at once"
        add("storage", f"random_4k_cold_{threads}", what, _read_random(large, place, threads))
    tell("small files")
    files: list[Path] = []
    for name, what, signal in _make_small(place, files):
        add("metadata", name, what, signal)
    for name, what, signal in _read_small(files, place):
        add("metadata", name, what, signal)
    return found


def _write(path: Path, place: Place) -> Signal:
    """Up to the asked size or time; the end of the file must have reached the disk to count."""
    block = os.urandom(CHUNK)  # not compressible: some file systems would cheat
    with path.open("wb", buffering=0) as file:
        left = iter(range(max(1, place.size_bytes // (SYNCED * CHUNK))))

        def act() -> float | None:
            if next(left, None) is None:
                return None
            for _ in range(SYNCED):
                file.write(block)
            os.fdatasync(file.fileno())
            return float(SYNCED * CHUNK)

        return time_rate(act, place.seconds, "bytes/s", "probe write")


def _read_large(path: Path, place: Place) -> Iterator[tuple[str, Signal]]:
    yield "cold", _when_cold(path, lambda: _read_through(path, place))
    _read_through(path, place)
    yield "warm", _read_through(path, place)


def _read_through(path: Path, place: Place) -> Signal:
    buffer = bytearray(CHUNK)
    with path.open("rb", buffering=0) as file:

        def act() -> float | None:
            return float(file.readinto(buffer) or 0) or None

        return time_rate(act, place.seconds, "bytes/s", "probe read")


def _read_random(path: Path, place: Place, threads: int) -> Signal:
    pages = path.stat().st_size // PAGE
    order = random.Random(pages).sample(range(pages), pages)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        left = iter(order)  # each page once: a second read would be warm; next() is atomic

        def act() -> float | None:
            page = next(left, None)
            return None if page is None else float(len(os.pread(descriptor, PAGE, page * PAGE)) > 0)

        return _when_cold(
            path,
            lambda: time_rate_of_threads([act] * threads, place.seconds, "count/s", "probe random"),
        )
    finally:
        os.close(descriptor)


def _make_small(place: Place, files: list[Path]) -> Iterator[tuple[str, str, Signal]]:
    count = min(MOST_SMALL, max(16, place.size_bytes // 4 // SMALL_BYTES))
    content = os.urandom(SMALL_BYTES)

    def make() -> float | None:
        if len(files) >= count:
            return None
        path = place.folder / f"{len(files)}.small"
        path.write_bytes(content)
        files.append(path)
        return 1.0

    what = "files made, 16 KiB each"
    yield "create_small", what, time_rate(make, place.seconds, "count/s", "probe create")
    names = _Rounds(files)
    yield (
        "stat",
        "stat of a known file",
        time_rate(lambda: float(names.next().stat().st_size > 0), place.seconds, "count/s", "stat"),
    )


def _read_small(files: list[Path], place: Place) -> Iterator[tuple[str, str, Signal]]:
    os.sync()
    for threads in (1, THREADS):
        what = f"small files opened and read, content cold, {threads} at once"
        yield f"small_files_cold_{threads}", what, _read_each(files, place, threads)
    rounds = _Rounds(files)

    def act() -> float:
        return float(len(rounds.next().read_bytes()) > 0)

    warm = time_rate(act, place.seconds, "count/s", "probe small files")
    yield "small_files_warm_1", "the same, warm, one at a time", warm


def _read_each(files: list[Path], place: Place, threads: int) -> Signal:
    for path in files:
        drop_pages(path)
    order = iter(random.Random(threads).sample(files, len(files)))

    def act() -> float | None:
        path = next(order, None)
        return None if path is None else float(len(path.read_bytes()) > 0)

    def measure() -> Signal:
        return time_rate_of_threads([act] * threads, place.seconds, "count/s", "probe small files")

    return _when_cold(files[-1], measure)


class _Rounds:
    """One after the other, again and again."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._at = 0

    def next(self) -> Path:
        self._at += 1
        return self._files[self._at % len(self._files)]


def _when_cold(path: Path, measure: Callable[[], Signal]) -> Signal:
    drop_pages(path)
    reason = why_still_warm(path)
    return measure() if reason is None else Missing(reason=reason)


def drop_pages(path: Path) -> None:
    """Take a file out of the page cache, as far as this user may."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def why_still_warm(path: Path) -> str | None:
    """Why the file is in memory in spite of `drop_pages`; None if its first page is not."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), PAGE, access=mmap.ACCESS_COPY) as page:
        start = ctypes.c_char.from_buffer(page)
        resident = ctypes.c_ubyte()
        failed = _mincore(ctypes.addressof(start), PAGE, ctypes.byref(resident))
        del start  # the mapping cannot be closed while it is pointed to
    if failed or not resident.value & 1:
        return None
    return "the file system keeps its files in memory and does not drop them on request"


_mincore = ctypes.CDLL(None).mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
