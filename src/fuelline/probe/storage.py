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

from fuelline.probe.pace import time_rate, time_rate_of_threads
from fuelline.schema.diagnosis.ceilings import Ceiling
from fuelline.schema.readings import Missing, Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fuelline.probe.place import ProbeFolder

LARGE = "large"
CHUNK = 1 << 20
SYNCED = 8
"""Chunks that reach the disk together: 8 MiB, as a checkpoint's writer would flush."""
PAGE = 4096
SMALL_BYTES = 16 * 1024
"""A thumbnail or a text snippet; ImageNet's JPEGs are seven times as large."""
MOST_SMALL = 4000
THREADS = 16
"""As many requests in flight as 16 loader workers have."""


def probe_storage(place: ProbeFolder, report: Callable[[str], None]) -> list[Ceiling]:
    """All measurements of the disk, in an order in which none warms the next one up."""
    found: list[Ceiling] = []

    def add(group: str, name: str, what: str, signal: Signal) -> None:
        found.append(Ceiling(group=group, name=name, what=what, signal=signal))

    report("writing")
    add("storage", "sequential_write", "write, large pieces, to the disk", _write(place))
    report("reading large pieces")
    for state, signal in _read_large(place):
        add("storage", f"sequential_read_{state}", f"read, large pieces, {state}", signal)
    report("random reads")
    for threads in (1, THREADS):
        what = f"random reads of 4 KiB, cold, {threads} at once"
        add("storage", f"random_4k_cold_{threads}", what, _read_random(place, threads))
    report("small files")
    files: list[str] = []
    for name, what, signal in _make_small(place, files):
        add("metadata", name, what, signal)
    for name, what, signal in _read_small(files, place):
        add("metadata", name, what, signal)
    return found


def _write(place: ProbeFolder) -> Signal:
    """Up to the asked size or time; the end of the file must have reached the disk to count."""
    block = os.urandom(CHUNK)  # not compressible: some file systems would cheat
    with place.open(LARGE, "xb") as file:
        left = iter(range(max(1, place.size_bytes // (SYNCED * CHUNK))))

        def act() -> float | None:
            if next(left, None) is None:
                return None
            for _ in range(SYNCED):
                file.write(block)
            os.fdatasync(file.fileno())
            return float(SYNCED * CHUNK)

        return time_rate(act, place.seconds, "bytes/s", "probe write")


def _read_large(place: ProbeFolder) -> Iterator[tuple[str, Signal]]:
    yield "cold", _when_cold(place, LARGE, lambda: _read_through(place))
    _read_through(place)
    yield "warm", _read_through(place)


def _read_through(place: ProbeFolder) -> Signal:
    buffer = bytearray(CHUNK)
    with place.open(LARGE, "rb") as file:

        def act() -> float | None:
            return float(os.readv(file.fileno(), [buffer])) or None

        return time_rate(act, place.seconds, "bytes/s", "probe read")


def _read_random(place: ProbeFolder, threads: int) -> Signal:
    with place.open(LARGE, "rb") as file:
        descriptor = file.fileno()
        pages = os.fstat(descriptor).st_size // PAGE
        order = random.Random(pages).sample(range(pages), pages)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        left = iter(order)  # each page once: a second read would be warm; next() is atomic

        def act() -> float | None:
            page = next(left, None)
            return None if page is None else float(len(os.pread(descriptor, PAGE, page * PAGE)) > 0)

        return _when_cold(
            place,
            LARGE,
            lambda: time_rate_of_threads([act] * threads, place.seconds, "count/s", "probe random"),
        )


def _make_small(place: ProbeFolder, files: list[str]) -> Iterator[tuple[str, str, Signal]]:
    count = min(MOST_SMALL, max(16, place.size_bytes // 4 // SMALL_BYTES))
    content = os.urandom(SMALL_BYTES)

    def make() -> float | None:
        if len(files) >= count:
            return None
        name = f"{len(files)}.small"
        with place.open(name, "xb") as file:
            file.write(content)
        files.append(name)
        return 1.0

    what = "files made, 16 KiB each"
    yield "create_small", what, time_rate(make, place.seconds, "count/s", "probe create")
    names = _Rounds(files)

    def look() -> float:
        return float(os.stat(names.next(), dir_fd=place.descriptor).st_size > 0)

    yield "stat", "stat of a known file", time_rate(look, place.seconds, "count/s", "stat")


def _read_small(files: list[str], place: ProbeFolder) -> Iterator[tuple[str, str, Signal]]:
    os.sync()
    for threads in (1, THREADS):
        what = f"small files opened and read, content cold, {threads} at once"
        yield f"small_files_cold_{threads}", what, _read_each(files, place, threads)
    rounds = _Rounds(files)

    def act() -> float:
        return _read_whole(place, rounds.next())

    warm = time_rate(act, place.seconds, "count/s", "probe small files")
    yield "small_files_warm_1", "the same, warm, one at a time", warm


def _read_whole(place: ProbeFolder, name: str) -> float:
    with place.open(name, "rb") as file:
        return float(len(file.read()) > 0)


def _read_each(files: list[str], place: ProbeFolder, threads: int) -> Signal:
    for name in files:
        drop_pages(place, name)
    order = iter(random.Random(threads).sample(files, len(files)))

    def act() -> float | None:
        name = next(order, None)
        return None if name is None else _read_whole(place, name)

    def measure() -> Signal:
        return time_rate_of_threads([act] * threads, place.seconds, "count/s", "probe small files")

    return _when_cold(place, files[-1], measure)


class _Rounds:
    """One after the other, again and again."""

    def __init__(self, files: list[str]) -> None:
        self._files = files
        self._at = 0

    def next(self) -> str:
        self._at += 1
        return self._files[self._at % len(self._files)]


def _when_cold(place: ProbeFolder, name: str, measure: Callable[[], Signal]) -> Signal:
    drop_pages(place, name)
    reason = why_still_warm(place, name)
    return measure() if reason is None else Missing(reason=reason)


def drop_pages(place: ProbeFolder, name: str) -> None:
    """Take a file out of the page cache, as far as this user may."""
    with place.open(name, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def why_still_warm(place: ProbeFolder, name: str) -> str | None:
    """Why the file is in memory in spite of `drop_pages`; None if its first page is not."""
    with (
        place.open(name, "rb") as file,
        mmap.mmap(file.fileno(), PAGE, access=mmap.ACCESS_COPY) as page,
    ):
        start = ctypes.c_char.from_buffer(page)
        resident = ctypes.c_ubyte()
        failed = _mincore(ctypes.addressof(start), PAGE, ctypes.byref(resident))
        del start  # the mapping cannot be closed while it is pointed to
    if failed or not resident.value & 1:
        return None
    return "the file system keeps its files in memory and does not drop them on request"


_mincore = ctypes.CDLL(None).mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
