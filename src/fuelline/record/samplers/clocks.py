"""CPU, run-queue and I/O counters of the job's processes and threads, once a second.

Counters are written as the kernel gives them. A row is left out when nothing in it has changed
since the last one of the same thread or process: absent means unchanged.
"""

from collections.abc import Iterator

from fuelline.record.samplers.procfs import Read, parse_fields, read_kept
from fuelline.record.samplers.tree import Process, Thread, Tree
from fuelline.schema.samples import Blind, ProcessClock, ProcessSeen, Row, ThreadClock

MAX_THREADS = 200
"""Threads read per second; more take turns. One costs about 3 us."""
BUSY_NS = 100_000
"""A helper thread with as much CPU in a second did something."""

BLIND_IO = Blind(
    "bytes that the job's processes read and write",
    "the kernel refuses /proc/PID/io",
    "telling reads that come from the page cache from reads that reach the disk",
)


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
        return [ProcessSeen(now_ns, each.pid, each.ppid, each.stat.name) for each in processes]

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
            *(io or (-1, -1, -1, -1, -1)),
            stat.major_faults,
            stat.rss_bytes,
        )
        if self._last.get(process.pid) != counters:
            self._last[process.pid] = counters
            yield ProcessClock(now_ns, process.pid, *counters)

    def _read_io(self, process: Process) -> tuple[int, ...] | None:
        if process.io_fd < 0:
            return None
        try:
            fields = parse_fields(self._read(process.io_fd))
        except PermissionError:
            return None
        except OSError:
            fields = {}
        names = ("rchar", "read_bytes", "syscr", "wchar", "write_bytes")
        return tuple(fields.get(name, -1) for name in names)

    def _next_threads(self) -> list[Thread]:
        threads = [
            thread
            for process in self._tree.processes.values()
            for thread in process.threads.values()
        ]
        start = self._turn if len(threads) > MAX_THREADS else 0
        self._turn = (start + MAX_THREADS) % max(len(threads), 1)
        return (threads[start:] + threads[:start])[:MAX_THREADS]

    def _thread_rows(self, thread: Thread, now_ns: int) -> Iterator[ThreadClock]:
        try:
            oncpu, runq, _ = map(int, self._read(thread.schedstat_fd).split())
        except (OSError, ValueError):  # it has ended, or the kernel keeps no schedstat
            return
        thread.is_busy = oncpu - thread.oncpu_ns > BUSY_NS
        if (oncpu, runq) != (thread.oncpu_ns, thread.runq_ns):
            thread.oncpu_ns, thread.runq_ns = oncpu, runq
            yield ThreadClock(now_ns, thread.pid, thread.tid, oncpu, runq)
