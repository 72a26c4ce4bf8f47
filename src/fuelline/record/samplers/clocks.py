"""CPU, run-queue and I/O counters of the job's processes and threads, once a second.

Counters are written as the kernel gives them. A row is left out when nothing in it has changed
since the last one of the same thread or process: absent means unchanged.

Also here: how fast a core is at this moment: the CPU time of a fixed piece of Python.

Shared machines change their speed by a factor of two within hours, and cores of different makes
differ by more. What takes as long as it takes to run some lines of Python, such as launching an
operator, is compared with this (`signals/recorded/compute.py`). Price: 0.2 ms at each call.
"""

import time
from collections.abc import Iterator

from fuelline.record.samplers.procfs import NS_PER_TICK, Read, read_kept
from fuelline.record.samplers.tree import Process, Thread, Tree
from fuelline.schema.redaction import redact
from fuelline.schema.run.samples import Blind, ProcessClock, ProcessSeen, Row, ThreadClock

MAX_THREADS = 200
"""Threads read per second; more take turns. One costs about 3 us."""
IDLE_EVERY = 4
"""Seconds between two looks at a thread that did nothing when it was last looked at."""
BUSY_NS = 200_000
"""A thread with as much CPU since the last look did something."""

BLIND_IO = Blind(
    "bytes that the job's processes read and write",
    "the kernel refuses /proc/PID/io",
    "separating reads from the page cache from reads that reach the disk",
)


_NO_IO = (-1, -1, -1, -1, -1)


class Clocks:
    """Reads the slow counters of the whole job."""

    def __init__(self, tree: Tree, read: Read = read_kept) -> None:
        self._tree = tree
        self._read = read
        self._turn = 0
        self._last: dict[int, tuple[int, ...]] = {}
        self._is_blind = False

    def introduce(self, processes: list[Process], now_ns: int) -> list[ProcessSeen]:
        """The rows that announce new processes."""
        return [
            ProcessSeen(
                now_ns, each.pid, each.ppid, redact(each.stat.name), find_start(each, now_ns)
            )
            for each in processes
        ]

    def sample(self, now_ns: int) -> list[Row]:
        """Rows for everything that changed since the last call."""
        rows: list[Row] = []
        for process in self._tree.processes.values():
            rows += self._process_rows(process, now_ns)
        for thread in self._next_threads():
            rows += self._thread_rows(thread, now_ns)
        self._last = {pid: self._last[pid] for pid in self._tree.processes if pid in self._last}
        return rows

    def _process_rows(self, process: Process, now_ns: int) -> Iterator[Row]:
        io = self._read_io(process)
        if io is None and not self._is_blind:
            self._is_blind = True
            yield BLIND_IO
        stat = process.stat
        counters = (
            stat.cpu_ns,
            *(io or _NO_IO),
            stat.major_faults,
            stat.rss_bytes,
        )
        if self._last.get(process.pid) != counters:
            self._last[process.pid] = counters
            yield ProcessClock(now_ns, process.pid, *counters)

    def _read_io(self, process: Process) -> tuple[int, ...] | None:
        """Five of `rchar: 1`, `wchar: 2`, `syscr: 3`, `syscw: 4`, `read_bytes: 5`, ..."""
        if process.io_fd < 0:
            return None
        try:
            rchar, wchar, syscr, _, read, write, _ = self._read(process.io_fd).split()[1::2]
        except PermissionError:
            return None
        except (OSError, ValueError):  # it has ended
            return _NO_IO
        return int(rchar), int(read), int(syscr), int(wchar), int(write)

    def _next_threads(self) -> list[Thread]:
        threads = [
            thread
            for process in self._tree.processes.values()
            for thread in process.threads.values()
        ]
        self._turn += 1
        due = [
            each for each in threads if each.is_busy or (each.tid + self._turn) % IDLE_EVERY == 0
        ]
        start = self._turn * MAX_THREADS % len(due) if len(due) > MAX_THREADS else 0
        return (due[start:] + due[:start])[:MAX_THREADS]

    def _thread_rows(self, thread: Thread, now_ns: int) -> Iterator[ThreadClock]:
        try:
            oncpu, runq, _ = map(int, self._read(thread.schedstat_fd).split())
        except (OSError, ValueError):  # it has ended, or the kernel keeps no schedstat
            return
        thread.is_busy = oncpu - thread.oncpu_ns > BUSY_NS
        if (oncpu, runq) != (thread.oncpu_ns, thread.runq_ns):
            thread.oncpu_ns, thread.runq_ns = oncpu, runq
            yield ThreadClock(now_ns, thread.pid, thread.tid, oncpu, runq)


def find_start(process: Process, now_ns: int) -> int:
    """When a process started; the kernel counts ticks on a clock that goes on in standby."""
    asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return min(process.stat.start_ticks * NS_PER_TICK - asleep_ns, now_ns)


_TURNS = 2000


def time_spin() -> int:
    """Nanoseconds of CPU that the piece took just now."""
    start_ns = time.thread_time_ns()
    value = 0
    for number in range(_TURNS):
        value = (value * 3 + number) & 0xFFFF
    return time.thread_time_ns() - start_ns
