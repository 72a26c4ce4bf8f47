"""The spool: one append-only, memory-mapped file per process, laid out as `schema.wire` says.

A guest in someone's training job, so: standard library only, no thread, no lock on the way of a
record, and nothing here ever raises because of the disk. Space is allocated before it is mapped
(writing to a hole on a full disk would be SIGBUS, which kills the training); when there is no more,
records are counted instead of kept. A forked child gets a file of its own at its first record.

Price of `append`: 64 bytes and under a microsecond, but ten times that in the midst of a training,
which leaves no line of this code in the caches. The hooks of quick steps therefore leave their
records with `Held`, to be written many at a time: then `kill -9` costs the last HOLD_NS of them.
"""

import atexit
import errno
import itertools
import mmap
import os
import resource
import struct
import sys
import threading
import time
import weakref
from _thread import get_native_id
from multiprocessing import util

from fuelline.record.held import Held
from fuelline.record.mapping import map_shared
from fuelline.schema import wire

__all__ = ["Spool"]

TEXT_CAP_BYTES = 4096
"""Settings as JSON take 400 bytes; a longer text is cut rather than allowed to fill the spool."""

HOLD_NS = 250_000_000
"""Held records are written with the first one that ends as long after the last writing."""

HOLD_RECORDS = 512
"""About as many are held at most: the garbage collector looks at each that it finds."""

UNHELD = 1000
"""Records that are all written at once before any is held: a short job loses nothing."""

QUICK_NS = 5_000_000
"""Records that come less often than this are written at once. A step has three or four, so this
speaks of steps under 20 ms; in longer ones the price of a record, even cold, is below 0.3 %."""

OLDER_SEGMENTS = 3
"""Kept mapped for threads that were suspended between reserving an offset and writing there."""

_RECORD_BYTES = wire.RECORD_BYTES
_pack_record = wire.RECORD.pack
_TEXT = int(wire.Kind.TEXT)
_TEXT_FIELDS = struct.Struct("<5q")
"""A chunk of text as the five integers that stand in its place in other records."""
_NO_FALLOCATE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}

_PHASE_TID, _DROPPED, _FAULTS, _STOPPED = (
    offset // wire.WORD.size
    for offset in (
        wire.PHASE_TID_OFFSET,
        wire.DROPPED_OFFSET,
        wire.FAULTS_OFFSET,
        wire.STOPPED_OFFSET,
    )
)

Segment = tuple[int, int, memoryview]
"""File offsets of its first byte and of its end, and its bytes."""


class _Thread(threading.local):
    """Remembers each thread's kernel id: a system call, a third of the price of a record."""

    def __init__(self) -> None:
        self.tid = get_native_id()


class Spool:
    """Writes this process's records to a file in `folder`, made at the first of them.

    `live` are the words of the header that change.
    """

    __slots__ = (
        "__weakref__", "_cap_bytes", "_closed", "_dropped", "_folder", "_growing", "_is_growing",
        "_older", "_reserve", "_segment", "_text_id", "_thread", "_unheld", "_wrote_at", "held",
        "live", "path",
    )  # fmt: skip

    def __init__(self, folder: str, cap_bytes: int = wire.CAP_BYTES) -> None:
        self._folder = folder
        self._cap_bytes = cap_bytes
        self.held = Held()
        self._start()
        self.held.born_ns = 0
        start = weakref.WeakMethod(self._start)
        os.register_at_fork(after_in_child=lambda: (alive := start()) and alive())
        finish = weakref.WeakMethod(self.write_held)
        atexit.register(lambda: (alive := finish()) and alive())
        # Children of multiprocessing leave without atexit, and begin with no finalizers.
        util.register_after_fork(
            self, lambda own: util.Finalize(None, own.write_held, exitpriority=0)
        )

    def _start(self) -> None:
        """Begin with no file; in a forked child this lets go of the parent's, unwritten.

        A garbage collection, whose hook appends, may run at any point of this: the parent's
        mapping goes first, and nothing is opened before the end.
        """
        self._closed = True
        nothing = memoryview(bytearray(wire.HEADER_BYTES))
        self.live = nothing.cast("Q")
        self._segment: Segment = (0, 0, nothing)
        self._older: tuple[Segment, ...] = ()
        self.path: str | None = None
        # Offsets in the file are handed out by a counter, whose step is atomic under the GIL.
        self._reserve = itertools.count(wire.HEADER_BYTES, wire.RECORD_BYTES).__next__
        self._text_id = itertools.count(1).__next__
        self._dropped = itertools.count(1).__next__
        self._growing = threading.RLock()
        self._is_growing = False
        self._thread = _Thread()
        self.held.reset()
        self._wrote_at = 0
        self._unheld = UNHELD
        self._closed = False

    def append(  # noqa: PLR0917 - the fields of a record
        self,
        kind: int,
        start_ns: int,
        dur_ns: int,
        a: int = 0,
        b: int = 0,
        c: int = 0,
        d: int = 0,
        e: int = 0,
        flags: int = 0,
    ) -> None:
        """Keep one record; `kind` and `flags` are plain ints, as enums would double the price."""
        tid = self._thread.tid
        self._write(_pack_record(start_ns, dur_ns, a, b, c, d, e, tid, flags, kind))

    def _write(self, record: bytes) -> None:
        at = self._reserve()
        base, end, buffer = self._segment
        if not base <= at < end:
            found = self._find(at)
            if found is None:
                self._drop()
                return
            base, end, buffer = found
        buffer[at - base : at - base + _RECORD_BYTES] = record

    def write_held(self) -> None:
        """Write what is held, and decide whether to hold what follows."""
        held = self.held
        records = held.take()
        count = len(records) // _RECORD_BYTES
        self._write_all(records, count)
        now_ns = time.monotonic_ns()
        apart_ns = (now_ns - self._wrote_at) // (count or 1)
        self._wrote_at = now_ns
        self._unheld -= 1
        held.write_at = 0
        if apart_ns < QUICK_NS and self._unheld < 0:
            held.write_at = now_ns + min(HOLD_NS, HOLD_RECORDS * apart_ns)

    def _write_all(self, records: bytes, count: int) -> None:
        """Write them with one copy if they fit in a row, which costs a fraction then."""
        if count > 1:
            offsets = [self._reserve() for _ in range(count)]
            base, end, buffer = self._segment
            has_room = base <= offsets[0] and offsets[-1] < end
            if has_room and offsets[-1] - offsets[0] == (count - 1) * _RECORD_BYTES:
                at = offsets[0] - base
                buffer[at : at + len(records)] = records
                return
            # What was reserved stays empty, which readers skip.
        for at in range(0, len(records), _RECORD_BYTES):
            self._write(records[at : at + _RECORD_BYTES])

    def text(self, value: str) -> int:
        """Keep a text in chunks and return the id by which other records name it."""
        data = value.encode("utf-8", "replace")[:TEXT_CAP_BYTES]
        text_id = self._text_id()
        for number, at in enumerate(range(0, len(data) or 1, wire.TEXT_CHUNK)):
            chunk = data[at : at + wire.TEXT_CHUNK].ljust(wire.TEXT_CHUNK, b"\0")
            a, b, c, d, e = _TEXT_FIELDS.unpack(chunk)
            self.append(_TEXT, text_id, len(data), a, b, c, d, e, number)
        return text_id

    def set_trainer(self, tid: int) -> None:
        """Say which thread is the trainer; from then on `live` and its phase are the file's."""
        self._find(wire.HEADER_BYTES)
        self.live[_PHASE_TID] = tid

    def count_fault(self) -> None:
        """Count an exception that a hook's guard caught."""
        self.live[_FAULTS] += 1

    def _drop(self) -> None:
        self.live[_DROPPED] = self._dropped()

    def _find(self, at: int) -> Segment | None:
        """The segment that holds offset `at`, made now if need be; None if it cannot be had."""
        with self._growing:
            # Growing within growing: a garbage collection in the midst of it has a record.
            while at >= self._segment[1] and not self._closed and not self._is_growing:
                self._grow()
            for segment in (self._segment, *self._older):
                if segment[0] <= at < segment[1]:
                    return segment
        return None

    def _grow(self) -> None:
        self._is_growing = True
        try:
            if self.path is None:
                self._open()
            else:
                self._extend(self.path)
        except OSError as refusal:
            if refusal.errno is None:
                raise  # of no system call: a handler of the job's raised it, as for a timeout
            self._closed = True
            self.live[_STOPPED] = refusal.errno
        finally:
            self._is_growing = False

    def _open(self) -> None:
        path = _fresh_path(self._folder)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            segment = _map(fd, 0, wire.HEADER_BYTES + wire.FIRST_SEGMENT_BYTES)
            _write_header(segment[2])
        except OSError:
            os.unlink(path)  # noqa: PTH108 - pathlib is not loaded in every job
            raise
        finally:
            os.close(fd)
        live = segment[2][: wire.HEADER_BYTES].cast("Q")
        first = wire.PHASE_OFFSET // wire.WORD.size
        live[first:] = self.live[first:]  # what was counted while there was no file
        self.live = live
        self.held.show(segment[2][wire.PHASE_OFFSET :][:1])
        self._segment = segment
        self.path = path

    def _extend(self, path: str) -> None:
        start = self._segment[1]
        is_second = start == wire.HEADER_BYTES + wire.FIRST_SEGMENT_BYTES
        end = start + (wire.SECOND_SEGMENT_BYTES if is_second else wire.SEGMENT_BYTES)
        if end > self._cap_bytes:
            raise OSError(errno.EFBIG, "the spool's own cap")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            segment = _map(fd, start, end)
        finally:
            os.close(fd)
        self._older = (self._segment, *self._older)[:OLDER_SEGMENTS]
        self._segment = segment


def _fresh_path(folder: str) -> str:
    """A name of its own for this process; the folder is made, but not the run it belongs to."""
    try:
        os.mkdir(folder)  # noqa: PTH102 - pathlib is not loaded in every job
    except FileExistsError:
        pass
    return f"{folder}/{os.getpid()}-{time.monotonic_ns()}{wire.SUFFIX}"


def _write_header(buffer: memoryview) -> None:
    wire.HEADER.pack_into(
        buffer,
        0,
        wire.MAGIC,
        wire.VERSION,
        os.getpid(),
        os.getppid(),
        sys.hexversion,
        time.monotonic_ns(),
        time.time_ns(),
    )


def _map(fd: int, start: int, end: int) -> Segment:
    _allocate(fd, start, end)
    base = start - start % mmap.ALLOCATIONGRANULARITY
    buffer = map_shared(fd, base, end - base)
    return base, end, buffer


def _allocate(fd: int, start: int, end: int) -> None:
    """Claim disk blocks for the range, or raise OSError; afterwards it can be written safely."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and end > limit:
        # Asking the kernel would also send SIGXFSZ, which a job may not ignore.
        raise OSError(errno.EFBIG, "RLIMIT_FSIZE")
    try:
        os.posix_fallocate(fd, start, end - start)
    except OSError as refusal:
        if refusal.errno not in _NO_FALLOCATE:
            raise
        _fill_with_zeros(fd, start, end)


def _fill_with_zeros(fd: int, start: int, end: int) -> None:
    while start < end:
        written = os.pwrite(fd, bytes(end - start), start)
        if not written:
            raise OSError(errno.ENOSPC, "no progress")
        start += written
