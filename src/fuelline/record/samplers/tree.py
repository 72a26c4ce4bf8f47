"""The job's processes and threads: the first process, everything below it, and nothing else.

Children are found through /proc/PID/task/TID/children a few times a second. A child is adopted
when it is seen for the second time: a job that starts thousands of short-lived processes must cost
us a list of numbers, not an inspection each. Who was adopted stays in the tree until it is gone,
even when its parent goes first.
"""

import os
from collections.abc import Iterable, Iterator

from fuelline.record.samplers.procfs import (
    REFUSED,
    VANISHED,
    Read,
    find_text,
    list_numbers,
    open_kept,
    parse_stat,
    read_kept,
)

MAX_ADOPTIONS = 16
"""New processes inspected per look; one inspection costs about 0.1 ms."""
MAX_PARENT_THREADS = 64
"""Threads per process and look that are asked for children besides the main thread."""
THOROUGH_EVERY_S = 5
"""Seconds between two looks at what seldom changes and costs a file per thread."""
OWN_DESCRIPTORS = 96
"""Kept back for ourselves when threads are given descriptors."""


class Thread:
    """One thread with the two files that are read again and again."""

    __slots__ = (
        "blocked_line", "blocked_until_ns", "blocked_verdict", "is_at_work", "is_busy",
        "last_state", "oncpu_ns", "pid", "runq_ns", "schedstat_fd", "syscall_fd", "tid",
    )  # fmt: skip

    def __init__(self, pid: int, tid: int, task_fd: int) -> None:
        self.pid = pid
        self.tid = tid
        self.syscall_fd = open_kept(f"{tid}/syscall", task_fd)
        try:
            self.schedstat_fd = open_kept(f"{tid}/schedstat", task_fd)
        except OSError:
            os.close(self.syscall_fd)
            raise
        self.oncpu_ns = self.runq_ns = -1
        self.is_busy = True
        self.is_at_work = False
        """Whether its stacks showed it in more than a wait: then it is looked at more often."""
        self.last_state = ""
        self.blocked_line = b""
        self.blocked_until_ns = 0
        self.blocked_verdict: tuple[str, str, int] = ("other", "", 0)

    def close(self) -> None:
        """Give the descriptors back; a late reader must not find another file behind them."""
        os.close(self.syscall_fd)
        os.close(self.schedstat_fd)
        self.syscall_fd = self.schedstat_fd = -1


class Process:
    """One process of the job; its descriptors outlive neither it nor us."""

    def __init__(self, pid: int, read: Read = read_kept) -> None:
        self._read = read
        self.dir_fd = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._fds = [self.dir_fd]
        self.threads: dict[int, Thread] = {}
        try:
            self.stat_fd = self._keep("stat")
            self.task_fd = self._keep("task")
            self.children_fd = self._keep_if_allowed(f"task/{pid}/children")
            self.io_fd = self._keep_if_allowed("io")
            self.stat = parse_stat(read(self.stat_fd))
        except OSError:
            self.close()
            raise
        self.pid = pid
        self.ppid = self.stat.ppid
        self.phase_fd: int | None = None
        self.has_own_phase = False
        self.refusals = 0
        self.is_parent = False
        self.has_other_threads = False
        """Whether a known thread was found to have ended: as many may have come in its place."""
        self.counted_cpu_ns = self.counted_reaped_ns = 0

    def _keep(self, name: str) -> int:
        self._fds.append(open_kept(name, self.dir_fd))
        return self._fds[-1]

    def _keep_if_allowed(self, name: str) -> int:
        try:
            return self._keep(name)
        except (*REFUSED, FileNotFoundError):
            return -1

    def refresh(self) -> None:
        """Read `stat` again; raises ProcessLookupError once the process has ended."""
        if not self.is_still_there():
            raise ProcessLookupError(self.pid)

    def is_still_there(self) -> bool:
        """Read `stat` again; what has ended but was not waited for still has its last CPU time."""
        try:
            self.stat = parse_stat(self._read(self.stat_fd))
        except VANISHED:
            return False
        return not self.stat.has_ended

    def refresh_threads(self, room: int) -> int:
        """Note which threads there are, with at most `room` new ones; gives the rest."""
        tids = set(list_numbers(self.task_fd))
        for tid in self.threads.keys() - tids:
            self.threads.pop(tid).close()
        new = sorted(tids - self.threads.keys())
        for tid in new[: max(room, 0)]:
            self._meet_thread(tid)
        return max(0, len(new) - max(room, 0))

    def _meet_thread(self, tid: int) -> None:
        try:
            self.threads[tid] = Thread(self.pid, tid, self.task_fd)
        except VANISHED:
            return

    def find_children(self) -> list[int]:
        """The processes that the main thread has started."""
        try:
            found = self._read(self.children_fd).split()
        except OSError:  # it has ended, or the kernel has no such file
            return []
        self.is_parent = self.is_parent or bool(found)
        return list(map(int, found))

    def find_children_of_helpers(self) -> Iterator[int]:
        """The processes that other threads have started; a file each, so not to be asked often."""
        for tid in [tid for tid in self.threads if tid != self.pid][:MAX_PARENT_THREADS]:
            yield from map(int, (find_text(f"{tid}/children", self.task_fd) or "").split())

    def close(self) -> None:
        """Give all descriptors back."""
        for thread in self.threads.values():
            thread.close()
        for fd in self._fds:
            os.close(fd)


class Tree:
    """All processes of the job that are alive, by pid."""

    def __init__(
        self,
        root_pid: int,
        max_descriptors: int,
        read: Read = read_kept,
        own_pid: int | None = None,
    ) -> None:
        self.processes: dict[int, Process] = {}
        self.threads_left_out = 0
        self._max_threads = max(16, (max_descriptors - OWN_DESCRIPTORS) // 3)
        self._root_pid = root_pid
        self._own_pid = own_pid
        """The observer's: a job that records itself is its parent, but it is none of the job."""
        self._seconds = 0
        self._candidates: set[int] = set()
        self._offered = {root_pid}
        self._children_of_helpers: set[int] = set()
        self._is_new_second = True
        self._awaited_ns = 0
        self._read = read
        self.cpu_ns = 0
        """CPU of the job so far, children that have ended included; as of the last refresh."""

    def offer(self, pids: Iterable[int]) -> None:
        """Processes that belong to the job for another reason, for example their spool."""
        self._offered.update(pid for pid in pids if pid not in self.processes)

    def look_for_children(self) -> list[Process]:
        """Adopt the children that were there at the last look too; gives the new processes.

        Asks those that are known to start processes each time, the others once a second.
        """
        found: set[int] = set(self._children_of_helpers)
        for process in self.processes.values():
            if process.is_parent or process.pid == self._root_pid or self._is_new_second:
                found.update(process.find_children())
        self._is_new_second = False
        found.discard(self._own_pid or 0)
        lasting = sorted((self._candidates & found) - self.processes.keys())
        due = (*self._offered, *lasting)[:MAX_ADOPTIONS]
        adopted = [self._adopt(pid) for pid in due]
        self._candidates = found - self.processes.keys()
        self._offered.difference_update(due)
        return [process for process in adopted if process is not None]

    def refresh(self) -> None:
        """Drop processes that have ended, note CPU and threads of the others; once a second."""
        self._seconds += 1
        self._is_new_second = True
        is_thorough = self._seconds % THOROUGH_EVERY_S == 0
        # Parents come before their children, and all are read before any is accounted for: only
        # then is the CPU of a child that has just ended known when it shows up with its parent.
        for process in [each for each in self.processes.values() if not each.is_still_there()]:
            self._drop(process)
        self.threads_left_out = 0
        for process in list(self.processes.values()):
            self._account(process)
            if is_thorough or process.stat.threads != len(process.threads):
                self.threads_left_out += self._refresh_threads(process)
        if is_thorough:
            everyone = self.processes.values()
            self._children_of_helpers = {
                pid for process in everyone for pid in process.find_children_of_helpers()
            }

    def replace_threads(self) -> bool:
        """Note the threads of processes in which one has ended; says whether there were any.

        A pool that lives for an epoch of less than a second would else be gone before it is met.
        """
        found = [each for each in self.processes.values() if each.has_other_threads]
        for process in found:
            self._refresh_threads(process)
        return bool(found)

    def _refresh_threads(self, process: Process) -> int:
        process.has_other_threads = False
        try:
            return process.refresh_threads(self._room())
        except VANISHED:
            return 0

    def list_ancestors(self, process: Process) -> Iterator[Process]:
        """The process itself, its parent, and so on up to the job's first process."""
        seen: set[int] = set()
        above: Process | None = process
        while above is not None and above.pid not in seen:
            yield above
            seen.add(above.pid)
            above = self.processes.get(above.ppid)

    def _account(self, process: Process) -> None:
        """Add the CPU that a process and its unseen children used since it was last read.

        A watched child's CPU comes a second time when its parent waits for it; `_awaited_ns` is how
        much of that is still to come.
        """
        used_ns = process.stat.cpu_ns - process.counted_cpu_ns
        reaped_ns = process.stat.reaped_cpu_ns - process.counted_reaped_ns
        known_ns = min(reaped_ns, self._awaited_ns)
        self._awaited_ns -= known_ns
        self.cpu_ns += used_ns + reaped_ns - known_ns
        process.counted_cpu_ns += used_ns
        process.counted_reaped_ns += reaped_ns

    def _drop(self, process: Process) -> None:
        self._account(process)
        self._awaited_ns += process.counted_cpu_ns + process.counted_reaped_ns
        self.processes.pop(process.pid).close()

    def close(self) -> None:
        """Give all descriptors back."""
        while self.processes:
            self.processes.popitem()[1].close()

    def _room(self) -> int:
        return self._max_threads - sum(len(each.threads) for each in self.processes.values())

    def _adopt(self, pid: int) -> Process | None:
        try:
            process = Process(pid, self._read)
        except OSError:
            return None
        try:
            process.refresh()
            process.refresh_threads(self._room())
        except OSError:
            process.close()
            return None
        if pid not in self._offered and process.ppid not in self.processes:
            process.close()
            return None
        self.processes[pid] = process
        return process
