"""What the kernel knows of the current thread: CPU time, time queued for a core, bytes read.

Read from kept descriptors of /proc, which halves the price (6 us for all). Sample of the files:

    /proc/thread-self/schedstat   2757349853 192299 27     (on CPU ns, queued ns, time slices)
    /proc/thread-self/io          rchar: 361974, wchar, syscr, syscw, read_bytes, ...  (one a line)

What the kernel refuses is -1, never 0.
"""

import os
import resource
from typing import NamedTuple

__all__ = ["ThreadClockReader", "ThreadCounters"]

_SCHEDSTAT = "/proc/thread-self/schedstat"
_IO = "/proc/thread-self/io"


class ThreadCounters(NamedTuple):
    """Cumulative counters of a thread, without our own reads; -1 where the kernel refused."""

    queued_ns: int
    rchar_bytes: int
    disk_bytes: int
    read_calls: int
    major_faults: int
    system_ns: int


_UNCOUNTED = ThreadCounters(-1, -1, -1, -1, -1, -1)


class ThreadClockReader:
    """Reads the counters of the thread that it is used in."""

    def __init__(self, *, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._files: tuple[_ProcFile, _ProcFile] | None = None
        self._own_bytes = 0
        self._own_calls = 0

    def start(self) -> ThreadCounters:
        """The counters before something; the one that our own reading may delay comes last."""
        if self._files is None:
            self._files = (
                _ProcFile(_SCHEDSTAT, is_kept=self._is_kept),
                _ProcFile(_IO, is_kept=self._is_kept),
            )
        schedstat, io = self._files
        read, usage = self._io(io.read()), resource.getrusage(resource.RUSAGE_THREAD)
        queued_ns = self._queued_ns(schedstat.read())
        return ThreadCounters(queued_ns, *read, usage.ru_majflt, int(usage.ru_stime * 1e9))

    def stop(self, start: ThreadCounters, dur_ns: int) -> ThreadCounters:
        """What was added since the start; no thread queues or computes longer than time passes."""
        if self._files is None:
            return _UNCOUNTED
        schedstat, io = self._files
        queued_ns = _added(self._queued_ns(schedstat.read()), start.queued_ns)
        usage, read = resource.getrusage(resource.RUSAGE_THREAD), self._io(io.read())
        return ThreadCounters(
            min(queued_ns, dur_ns),
            _added(read[0], start.rchar_bytes),
            _added(read[1], start.disk_bytes),
            _added(read[2], start.read_calls),
            usage.ru_majflt - start.major_faults,
            min(int(usage.ru_stime * 1e9) - start.system_ns, dur_ns),
        )

    def _queued_ns(self, schedstat: bytes) -> int:
        self._own_bytes += len(schedstat)
        self._own_calls += 1
        fields = schedstat.split()
        # Without CONFIG_SCHED_INFO the file is there and says nothing but zeros.
        return int(fields[1]) if len(fields) > 1 and fields[0] != b"0" else -1

    def _io(self, io: bytes) -> tuple[int, int, int]:
        fields = io.split()
        if len(fields) < 10:
            return -1, -1, -1
        answer = int(fields[1]) - self._own_bytes, int(fields[9]), int(fields[5]) - self._own_calls
        # The kernel counts this read after it has answered it.
        self._own_bytes += len(io)
        self._own_calls += 1
        return answer


def _added(now: int, before: int) -> int:
    return now - before if now >= 0 and before >= 0 else -1


class _ProcFile:
    """A small file of /proc, kept open or not."""

    def __init__(self, path: str, *, is_kept: bool) -> None:
        self._path = path
        self._fd = -1
        self._link = ""
        if is_kept:
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._link = os.readlink(f"/proc/self/fd/{self._fd}")  # noqa: PTH115 - as below
            except OSError:
                return  # read() will not find it either, and says so by an empty answer

    def read(self) -> bytes:
        try:
            if self._fd >= 0:
                return os.pread(self._fd, 512, 0)
            with open(self._path, "rb", buffering=0) as file:  # noqa: PTH123 - no pathlib here
                return file.read(512)
        except OSError:
            return b""

    def __del__(self) -> None:
        """Close our descriptor, unless the job has closed it and uses the number itself now."""
        if self._fd < 0:
            return
        try:
            if os.readlink(f"/proc/self/fd/{self._fd}") == self._link:  # noqa: PTH115
                os.close(self._fd)
        except OSError:
            return
