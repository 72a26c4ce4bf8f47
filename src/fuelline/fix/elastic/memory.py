"""Shared memory that batches travel in: a pool of segments per worker, mapped once on both sides.

Torch's loader makes new shared memory for every tensor of every batch: the kernel clears its pages,
both sides map them one by one, and the last one to let go gives them back. Here a worker writes the
next batch into a segment that an earlier one had. It may do so only when nobody has that one any
more: not the worker, where a tensor's storage holds a view of the segment, and not the trainer,
whose storage holds a view as well. Slices, numpy arrays and what else has the memory keep the view.
When the trainer's view dies, its end is counted in the last word of the segment, which the
worker compares with how often it has sent it. Nothing is waited for, and nothing is locked.

Messages that are too long for a packet travel here, too; which tensors do is said in segments.
Standard library only: also what passes batches on from another host, and knows no torch, puts them
here.

Segments have no names: they are gone when both processes are, however these ended. They are not
part of /dev/shm, and all of a segment's memory is there before it is used, so there is no SIGBUS.
Where there is none to be had, batches go torch's way. A process that is forked may have any tensor
of its parent's: segments in use at that moment are not used again.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BytePool", "SegmentTable"]

WORD_BYTES = 8
_TAIL_BYTES = 64
"""At the end of a segment, of which the first word counts: a cache line of its own."""
LOOSEST = 2
"""Times what is needed, at most, that a segment may have."""
LEAST_AGE = 16
"""Tensors made until a segment that was not needed for any of them is dropped, and twice as many
more as there are segments in use: a queue goes through all of its segments in turn."""
MOST_SEGMENTS = 1024
"""Of a worker: 16 workers then have a quarter of the mappings that a process may (65,530,
/proc/sys/vm/max_map_count)."""
PATIENCE = 16
"""Segments in use for each one that is made without looking through them all again."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value
_POOLS: weakref.WeakSet[_Forked] = weakref.WeakSet()


class _Forked:
    """Has segments whose users are copied when this process is forked."""

    def withhold(self) -> None:
        """Do not use those again that are in use now."""
        raise NotImplementedError


def _withhold_all() -> None:
    for each in list(_POOLS):
        each.withhold()


os.register_at_fork(before=_withhold_all, after_in_parent=_withhold_all)  # threads go on


class _Mapping:
    """Undone when nobody has it. Python's own keeps a descriptor open, of which a job has few."""

    _unmap = _LIBC.munmap  # modules may be gone before the last batch

    def __init__(self, fd: int, size: int) -> None:
        access, how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | mmap.MAP_POPULATE
        self.address = _LIBC.mmap(None, size, access, how, fd, 0)
        self._size = 0
        if self.address in {None, _FAILED}:
            raise OSError(ctypes.get_errno(), "shared memory cannot be mapped")
        self._size = size

    def view(self) -> memoryview:
        """All of it; keeps the mapping."""
        memory = (ctypes.c_ubyte * self._size).from_address(self.address)
        memory.owner = self  # type: ignore[attr-defined]
        return memoryview(memory).cast("B")

    def remove(self) -> None:
        """Give its memory back to the kernel, for all that have it mapped."""
        _LIBC.madvise(self.address, self._size, mmap.MADV_REMOVE)

    def __del__(self) -> None:
        if self._size:
            self._unmap(self.address, self._size)


class _Segment:
    """One piece of shared memory, as this process has it mapped."""

    def __init__(self, fd: int, size: int) -> None:
        self._mapping = _Mapping(fd, size)
        self.memory = self._mapping.view()
        self.capacity = size - _TAIL_BYTES
        self._count = self.memory[self.capacity : self.capacity + WORD_BYTES].cast("Q")
        self._lease: weakref.ref[memoryview] | None = None
        self._pid = os.getpid()
        self.is_withheld = False
        """Whether it may not be used again, as somebody unknown has it."""

    @property
    def returned(self) -> int:
        """How often the trainer was done with it."""
        return self._count[0]

    @property
    def is_leased(self) -> bool:
        """Whether anything in this process has its memory."""
        return self._lease is not None and self._lease() is not None

    def lease(self, size: int) -> memoryview:
        """Its first bytes, which are this process's own as long as it has them."""
        view = self.memory[:size]
        self._lease = weakref.ref(view)
        return view

    def open(self, size: int) -> memoryview:
        """Its first bytes; counted when nobody has them any more."""
        view = self.memory[:size]
        self._lease = weakref.ref(view, self._give_back)
        return view

    def _give_back(self, _: Any) -> None:
        """Called in any thread; in a forked child it is only the child's copy that died."""
        if not self.is_withheld and os.getpid() == self._pid:
            self._count[0] += 1

    def remove(self) -> None:
        """Give its memory back now; otherwise that is done when the last one has unmapped it."""
        self._mapping.remove()


class _OwnSegment(_Segment):
    """A worker's, which it sends."""

    def __init__(self, number: int, size: int) -> None:
        """All of its memory is there, or OSError is raised."""
        self.fd = os.memfd_create("fuelline-batch", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(self.fd, 0, size)
            super().__init__(self.fd, size)
        except OSError:
            os.close(self.fd)
            raise
        self.number = number
        self.address = 0
        self.used_at = 0
        self.sent = 0

    @property
    def is_free(self) -> bool:
        """Whether neither side has it."""
        return self.returned == self.sent and not self.is_leased and not self.is_withheld

    def let_go(self) -> None:
        """The other side has mapped it, or will."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        if hasattr(self, "number"):
            self.let_go()


class BytePool(_Forked):
    """A worker's segments; one thread uses it."""

    def __init__(self) -> None:
        self._busy: dict[int, _OwnSegment] = {}
        """By number, the one that was taken first at the front."""
        self._free: dict[int, list[_OwnSegment]] = {}
        """By capacity, the one that was used last at the end: it may still be in a cache."""
        self._by_address: dict[int, _OwnSegment] = {}
        self._numbers = iter(range(MOST_SEGMENTS))
        self._dropped: list[int] = []
        """Numbers to use again; the trainer forgets a segment when its number is another's."""
        self._packed: list[_OwnSegment] = []
        self._clock = 0
        self._patience = 0
        self.reducers: dict[type, Callable[[Any], Any]] = {}
        """How pickle takes what is in segments."""
        _POOLS.add(self)

    def find(self, size: int) -> _OwnSegment | None:
        """One that is free now, or a new one; None if there is no memory for it."""
        self._clock += 1
        needed = -(-(size + _TAIL_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE - _TAIL_BYTES
        segment = self._pop(needed)
        if segment is None and self._patience <= 0:
            self._sweep()
            segment = self._pop(needed)
        if segment is None:
            self._patience -= 1
            segment = self._make(needed)
        if segment is not None:
            segment.used_at = self._clock
            self._busy[segment.number] = segment
        return segment

    def _pop(self, needed: int) -> _OwnSegment | None:
        """The free segment that fits best."""
        fit = needed if needed in self._free else 0
        if not fit:
            fits = (each for each in self._free if needed <= each <= LOOSEST * needed)
            fit = min(fits, default=0)
        if not fit:
            return None
        segment = self._free[fit].pop()
        if not self._free[fit]:
            del self._free[fit]
        return segment

    def _sweep(self) -> None:
        """Find those that nobody has any more, and drop those that nobody needed for long."""
        for segment in [each for each in self._busy.values() if each.is_free]:
            del self._busy[segment.number]
            self._free.setdefault(segment.capacity, []).append(segment)
        self._patience = len(self._busy) // PATIENCE
        oldest = self._clock - LEAST_AGE - 2 * len(self._busy)
        self._drop(segment for segment in self._list_free() if segment.used_at < oldest)

    def _list_free(self) -> Iterator[_OwnSegment]:
        return (segment for segments in self._free.values() for segment in segments)

    def _drop(self, segments: Iterator[_OwnSegment]) -> None:
        for segment in list(segments):
            same = self._free[segment.capacity]
            same.remove(segment)
            if not same:
                del self._free[segment.capacity]
            segment.remove()
            self._by_address.pop(segment.address, None)
            self._dropped.append(segment.number)

    def _make(self, needed: int) -> _OwnSegment | None:
        number = self._dropped.pop() if self._dropped else next(self._numbers, None)
        if number is None:
            number = next(iter(self._busy))  # somebody keeps batches: this one is theirs now
            self._by_address.pop(self._busy.pop(number).address, None)
        try:
            return _OwnSegment(number, needed + _TAIL_BYTES)
        except OSError:
            self._dropped.append(number)
            self.rest()
            return None

    def rest(self) -> None:
        """There is nothing to do, or no memory: keep only what is in use."""
        self._sweep()
        self._drop(self._list_free())

    def withhold(self) -> None:
        """As above."""
        for segment in self._busy.values():
            segment.is_withheld |= segment.is_leased

    def store(self, content: memoryview) -> tuple[int, int] | None:
        """Put a long message's bytes into a segment; its number, and its descriptor or -1."""
        segment = self.find(content.nbytes)
        if segment is None:
            return None
        segment.memory[: content.nbytes] = content
        self.send(segment)
        return segment.number, segment.fd

    def send(self, segment: _OwnSegment) -> None:
        """Put into the message that is being packed.

        A batch that is sent again may be had more than once: nobody counts how often.
        """
        self._packed.append(segment)
        segment.is_withheld |= segment.sent != segment.returned

    def end_message(self, *, is_packed: bool) -> None:
        """What was put into a message is on its way, or will not be sent."""
        packed, self._packed = self._packed, []
        for segment in packed if is_packed else ():
            segment.sent += 1
            segment.let_go()


class SegmentTable(_Forked):
    """The segments of one worker, as the trainer has them."""

    def __init__(self) -> None:
        self._segments: dict[int, _Segment] = {}
        _POOLS.add(self)

    def open(self, number: int, fd: int | None, size: int) -> memoryview:
        """The first bytes of a segment, which comes with a descriptor the first time."""
        if fd is not None:
            try:
                self._segments[number] = _Segment(fd, os.fstat(fd).st_size)
            finally:
                os.close(fd)
        return self._segments[number].open(size)

    def withhold(self) -> None:
        """As above."""
        for segment in list(self._segments.values()):
            segment.is_withheld |= segment.is_leased

    def close(self) -> None:
        """The worker ends; processes that were forked meanwhile have its segments mapped, too."""
        for segment in self._segments.values():
            if not segment.is_leased and not segment.is_withheld:
                segment.remove()
        self._segments.clear()
