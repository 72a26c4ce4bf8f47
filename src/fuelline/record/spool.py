"""The spool: one file per process, laid out as `schema.wire` says, that only ever grows.

A guest in someone's training job, so: standard library only, no thread, and nothing here
ever raises because of the disk. Records are written with write calls and not
through a mapping: whatever becomes of the file (cut short, deleted, on a full disk), a write fails,
and records are counted instead of kept; a store to a mapping would be SIGBUS, which kills the
training. A forked child gets its own file at its first record.

Price of a write: 7 us on a busy machine, of a held record 0.5 us, and more in the middle of a
training, which leaves no line of this code in the caches. So where records come quickly they are
held and written many at a time: then `kill -9` costs the last HOLD_NS of them.
"""

import atexit
import ctypes
import errno
import itertools
import mmap
import os
import struct
import sys
import threading
import time
import weakref
from _thread import get_native_id
from multiprocessing import util

from fuelline.record.buffer import RecordBuffer, spill
from fuelline.schema import wire
from fuelline.schema.memory import make_memory, seal_size

__all__ = ["Spool"]

TEXT_CAP_BYTES = 4096
"""Settings as JSON take 400 bytes; a longer text is cut rather than allowed to fill the spool."""

HOLD_NS = 250_000_000
"""Held records are written with the first one that ends as long after the last writing."""

HOLD_RECORDS = 512
"""About as many are held at most: the garbage collector looks at each that it finds."""

UNHELD = 1000
"""Writes of single records before any is held: a short job loses nothing."""

QUICK_NS = 5_000_000
"""Records that come less often than this are written at once. A step has three or four, so this
speaks of steps under 20 ms; in longer ones the price of a record, even cold, is below 0.3 %."""

_RECORD_BYTES = wire.RECORD_BYTES
_pack_record = wire.RECORD.pack
_TEXT = int(wire.Kind.TEXT)
_TEXT_FIELDS = struct.Struct("<5q")
"""A chunk of text as the five integers that stand in its place in other records."""
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
"""Refusals of opening the file that end by themselves: the job has all its descriptors in use, or
another process a lease of the file, as a file server may."""


class _ThreadIds(threading.local):
    """Remembers each thread's kernel id: a system call, a third of the price of a record."""

    def __init__(self) -> None:
        self.tid = get_native_id()


class Spool:
    """Writes this process's records to a file in `folder`, made with the first of them."""

    __slots__ = (
        "__weakref__", "_cap_bytes", "_dropped", "_end", "_faults", "_folder", "_is_writing",
        "_late", "_live_fd", "_stopped", "_text_id", "_thread", "_trainer", "_unheld",
        "_write_at", "_writing", "_wrote_at", "buffer", "path",
    )  # fmt: skip

    def __init__(self, folder: str, cap_bytes: int = wire.CAP_BYTES) -> None:
        self._folder = folder
        self._cap_bytes = cap_bytes
        self.buffer = RecordBuffer()
        self._start()
        self.buffer.born_ns = 0
        start = weakref.WeakMethod(self._start)
        os.register_at_fork(after_in_child=lambda: (alive := start()) and alive())
        finish = weakref.WeakMethod(self.write_buffered)
        atexit.register(lambda: (alive := finish()) and alive())
        # Children of multiprocessing leave without atexit, and begin with no finalizers.
        util.register_after_fork(
            self, lambda own: util.Finalize(None, own.write_buffered, exitpriority=0)
        )

    def _start(self) -> None:
        """Begin with no file; a forked child lets go of its parent's, and of what that holds."""
        self._late: list[bytes] = []
        self._writing = threading.RLock()
        self._is_writing = False
        self.path: str | None = None
        self._end = 0
        self._text_id = itertools.count(1).__next__
        self._trainer = self._dropped = self._faults = self._live_fd = self._stopped = 0
        self._thread = _ThreadIds()
        self.buffer.reset()
        self._write_at = self._wrote_at = 0
        self._unheld = UNHELD

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
        late = self._late
        late.append(_pack_record(start_ns, dur_ns, a, b, c, d, e, tid, flags, kind))
        if start_ns + dur_ns >= self._write_at or not start_ns or len(late) >= HOLD_RECORDS:
            # Before there is a trainer, collections may be held; afterwards only it takes them.
            self._write(b"" if self.buffer.trainer else self.buffer.take())

    def write_buffered(self) -> None:
        """Write all that is held."""
        self._write(self.buffer.take())

    def text(self, value: str) -> int:
        """Keep a text in chunks and return the id by which other records name it."""
        data = value.encode("utf-8", "replace")[:TEXT_CAP_BYTES]
        text_id = self._text_id()
        tid = self._thread.tid
        for number, at in enumerate(range(0, len(data) or 1, wire.TEXT_CHUNK)):
            chunk = data[at : at + wire.TEXT_CHUNK].ljust(wire.TEXT_CHUNK, b"\0")
            fields = _TEXT_FIELDS.unpack(chunk)
            self._late.append(_pack_record(text_id, len(data), *fields, tid, number, _TEXT))
        return text_id

    def set_trainer(self, tid: int) -> None:
        """Say which thread is the trainer; from now on its phase can be seen from outside."""
        self._trainer = tid
        if not self._live_fd:
            self._live_fd = self._share_phase()
        self.write_buffered()

    def count_fault(self) -> None:
        """Count an exception that a hook's guard caught."""
        self._faults += 1
        self._write(b"")

    def _write(self, more: bytes) -> None:
        """Write what is late and `more`, and decide whether to hold what follows.

        A garbage collection in the middle of this, whose hook appends, leaves its record to the
        next. Python runs no handler of a signal between a lock's taking and the block behind it,
        nor between a plain line and its `try`, so an interrupt of the job's leaves nothing taken.
        """
        late = self._late
        late.append(more)
        with self._writing:
            if self._is_writing:
                return
            self._is_writing = True
            try:
                count = len(late)
                records = b"".join(late[:count])
                del late[:count]
                self._write_all(records)
                self._pace(len(records) // _RECORD_BYTES)
            finally:
                self._is_writing = False

    def _pace(self, count: int) -> None:
        now_ns = time.monotonic_ns()
        apart_ns = (now_ns - self._wrote_at) // (count or 1)
        self._wrote_at = now_ns
        self._unheld -= 1
        is_quick = apart_ns < QUICK_NS and self._unheld < 0
        hold_ns = min(HOLD_NS, HOLD_RECORDS * apart_ns)
        self._write_at = self.buffer.write_at = now_ns + hold_ns if is_quick else 0

    def _write_all(self, records: bytes) -> None:
        size = len(records)
        if self.path is None and not records and not self._trainer:
            return  # there is nothing to make a file for
        if self._end + size > self._cap_bytes and not self._stopped:
            self._stopped = errno.EFBIG
        if self._stopped:
            self._drop(records)
            if self.path is not None:
                spill(self.path, 0, b"", wire.NOTES_OFFSET, self._notes())
            return
        if self.path is None:
            problem = self._open(records)
        else:
            self._end += size
            at = self._end - size
            problem = spill(self.path, at, records, wire.NOTES_OFFSET, self._notes())
            self._end -= size if problem else 0
        if problem in _PASSING and size <= HOLD_RECORDS * _RECORD_BYTES:
            self._late.insert(0, records)
        elif problem in _PASSING:
            self._drop(records)
        elif problem:
            self._stopped = problem
            self._write_all(records)

    def _drop(self, records: bytes) -> None:
        self._dropped += len(records) // _RECORD_BYTES

    def _open(self, records: bytes) -> int:
        """Make the file with its first records; 0, or why there is none."""
        try:
            path = _fresh_path(self._folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(path, flags, 0o600))
        except OSError as refusal:
            if refusal.errno is None:
                raise  # of no system call: a handler of the job's raised it, as for a timeout
            return refusal.errno
        content = _header() + records
        self._end = len(content)
        problem = spill(path, 0, content, wire.NOTES_OFFSET, self._notes())
        if not problem:
            self.path = path
            return 0
        self._end = 0
        try:
            os.unlink(path)  # noqa: PTH108 - pathlib is not loaded in every job
        except OSError:
            pass  # an empty file says that there is nothing
        return problem

    def _notes(self) -> bytes:
        return wire.NOTES.pack(
            self._trainer, self._dropped, self._faults, self._live_fd, self._stopped, self._end
        )

    def close(self) -> None:
        """Write what is held and give the descriptor back, if its number is still ours."""
        self.write_buffered()
        number, self._live_fd = self._live_fd - 1, 0
        self._stopped = self._stopped or errno.EBADF
        try:
            if number >= 0 and wire.is_live(os.getpid(), number):
                os.close(number)
        except OSError:
            return  # the job has closed it

    def _share_phase(self) -> int:
        """Put the phase where the observer can see it; the descriptor plus one, or 0.

        The descriptor stays open, since by it the page is found; nothing here uses its number
        again, which may be another file's one day.
        """
        try:
            fd = make_memory(wire.LIVE_NAME)
            os.ftruncate(fd, wire.LIVE_BYTES)
            seal_size(fd)
            page = _map_page(fd)
        except OSError as refusal:
            if refusal.errno is None:
                raise  # as in `_open`
            return 0
        self.buffer.show(page[wire.PHASE_OFFSET :][:1])
        return fd + 1


def _map_page(fd: int) -> memoryview:
    """A page of shared memory, for as long as the process lives.

    Python's own `mmap` objects (before 3.13) keep a duplicate of the descriptor and close that
    number when they go, whatever file of the job's it stands for by then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = libc.mmap(None, wire.LIVE_BYTES, access, mmap.MAP_SHARED, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "no page to map")
    return memoryview((ctypes.c_ubyte * wire.LIVE_BYTES).from_address(address)).cast("B")


def _fresh_path(folder: str) -> str:
    """A name of its own for this process; the folder is made, but not the run it belongs to."""
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102 - pathlib is not loaded in every job
    except FileExistsError:
        pass
    return f"{folder}/{os.getpid()}-{time.monotonic_ns()}{wire.SUFFIX}"


def _header() -> bytes:
    """The first page."""
    return wire.HEADER.pack(
        wire.MAGIC,
        wire.VERSION,
        os.getpid(),
        os.getppid(),
        sys.hexversion,
        time.monotonic_ns(),
        time.time_ns(),
    ).ljust(wire.HEADER_BYTES, b"\0")
