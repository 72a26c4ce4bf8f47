"""What processes outside the job do: CPU and I/O in total, and the few that are noticeable.

All of the machine's processes are looked at in turns, `stat` only; a process that used no CPU since
its last turn did no I/O worth mentioning, costs nothing more and gets fewer turns. Kernel threads
work for someone else and are left out. The total CPU of others does not come from this list, but is
the machine's busy time less the job's and our own: that also counts neighbours in other containers,
whom /proc does not show.
"""

import os
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from msgspec.structs import replace

from fuelline.record.samplers.blocked import Resolver
from fuelline.record.samplers.descriptors import DescriptorKind, Descriptors
from fuelline.record.samplers.procfs import (
    Stat,
    find_field,
    list_numbers,
    open_kept,
    parse_stat,
    read_kept,
    read_once,
)
from fuelline.record.samplers.tree import Process, Tree
from fuelline.schema.redaction import redact
from fuelline.schema.run.samples import OtherProcess

MAX_LOOKS = 250
"""Processes looked at per call, at 7 us each; more take turns."""
MAX_ROWS = 16
MAX_THREADS = 256
"""Threads of all busy processes together that are looked at for what they are blocked on."""
IDLE_LOOKS = 3
IDLE_EVERY = 4
"""A process that was idle in this many looks is looked at in every fourth one only."""
_KTHREADD = 2
"""The parent of all kernel threads."""
_STORAGE = ("read", "metadata", "write")
NOTICEABLE_CPU_SHARE = 0.05
NOTICEABLE_BYTES_PER_S = 1_000_000
NOTICEABLE_CALLS_PER_S = 1000
_MAX_FDS = 64


@dataclass(slots=True)
class _Known:
    stat_fd: int
    at_ns: int
    stat: Stat
    io: tuple[int, int, int] | None
    idle_looks: int = 0

    @property
    def is_kernel_thread(self) -> bool:
        return self.stat.ppid == _KTHREADD


class Others:
    """Follows the processes that are not the job's, nor ours."""

    def __init__(self, tree: Tree, resolver: Resolver, descriptors: Descriptors) -> None:
        self._tree = tree
        self._resolver = resolver
        self._descriptors = descriptors
        self._known: dict[int, _Known] = {}
        self._suspects: dict[int, Process] = {}
        self._turn = 0
        self.looks = 0
        """Calls of `sample` so far; counts of blocked threads are per look."""
        self.read_bytes: int | None = None
        """Bytes that others read from devices so far; None until the kernel has reported any."""
        self.write_bytes: int | None = None

    def sample(self, now_ns: int, own_pids: frozenset[int]) -> list[OtherProcess]:
        """The noticeable processes since each one's last turn, busiest first."""
        self.looks += 1
        pids = sorted(list_numbers("/proc"))
        self._forget(frozenset(pids))
        start = self._turn if len(pids) > MAX_LOOKS else 0
        self._turn = (start + MAX_LOOKS) % max(len(pids), 1)
        rows = []
        for pid in (pids[start:] + pids[:start])[:MAX_LOOKS]:
            if pid not in own_pids and pid not in self._tree.processes and self._is_due(pid):
                row = self._look_at(pid, now_ns)
                if row is not None:
                    rows.append(row)
        rows.sort(key=lambda row: row.cpu_ns + row.disk_read_bytes + row.disk_write_bytes)
        busiest = rows[: -MAX_ROWS - 1 : -1]
        self._drop_suspects(self._suspects.keys() - {row.pid for row in busiest})
        located = [self._locate(row) for row in busiest]
        return [row for row in located if row.blocked or _is_noticeable(row)]

    def close(self) -> None:
        """Give all descriptors back."""
        self._forget(frozenset())
        self._drop_suspects(set(self._suspects))

    def _forget(self, alive: frozenset[int]) -> None:
        for pid in [pid for pid in self._known if pid not in alive]:
            os.close(self._known.pop(pid).stat_fd)

    def _drop_suspects(self, pids: AbstractSet[int]) -> None:
        for pid in pids:
            self._suspects.pop(pid).close()

    def _is_due(self, pid: int) -> bool:
        known = self._known.get(pid)
        if known is None:
            return True
        if known.is_kernel_thread:
            return False
        return known.idle_looks < IDLE_LOOKS or (pid + self.looks) % IDLE_EVERY == 0

    def _look_at(self, pid: int, now_ns: int) -> OtherProcess | None:
        known = self._known.get(pid)
        try:
            if known is None:
                self._meet(pid, now_ns)
                return None
            stat = parse_stat(read_kept(known.stat_fd))
        except OSError:
            self._forget(frozenset(self._known) - {pid})
            return None
        if stat.ppid in self._tree.processes:
            self._tree.offer([pid])
        if stat.cpu_ns == known.stat.cpu_ns:
            known.idle_looks += 1
            return None
        known.idle_looks = 0
        return self._compare(pid, known, stat, now_ns)

    def _meet(self, pid: int, now_ns: int) -> None:
        fd = open_kept(f"/proc/{pid}/stat")
        try:
            stat = parse_stat(read_kept(fd))
        except OSError:
            os.close(fd)
            return
        io = None if stat.ppid == _KTHREADD else _read_io(pid)
        self._known[pid] = _Known(fd, now_ns, stat, io)

    def _compare(self, pid: int, known: _Known, stat: Stat, now_ns: int) -> OtherProcess:
        io = _read_io(pid)
        moved = (0, 0, -1)
        if io is not None and known.io is not None:
            moved = (io[0] - known.io[0], io[1] - known.io[1], io[2] - known.io[2])
            self.read_bytes = (self.read_bytes or 0) + max(moved[0], 0)
            self.write_bytes = (self.write_bytes or 0) + max(moved[1], 0)
        row = OtherProcess(
            at_ns=now_ns,
            interval_ns=now_ns - known.at_ns,
            pid=pid,
            name=redact(stat.name),
            cpu_ns=stat.cpu_ns - known.stat.cpu_ns,
            disk_read_bytes=moved[0],
            disk_write_bytes=moved[1],
            calls=moved[2],
            place=0,
        )
        known.at_ns, known.stat, known.io = now_ns, stat, io
        return row

    def _locate(self, row: OtherProcess) -> OtherProcess:
        """Add where it works: what it is blocked on now, else its newest open file."""
        try:
            process = self._suspects.get(row.pid) or Process(row.pid)
        except OSError:
            return row
        self._suspects[row.pid] = process
        try:
            process.refresh()
            if process.stat.threads != len(process.threads):
                process.refresh_threads(self._room())
            place, blocked = self._find_place(process, row.at_ns)
        except OSError:
            self._drop_suspects({row.pid})
            return row
        return replace(row, place=place, blocked=blocked)

    def _room(self) -> int:
        return MAX_THREADS - sum(len(each.threads) for each in self._suspects.values())

    def _find_place(self, process: Process, now_ns: int) -> tuple[int, int]:
        """The place that most threads are blocked on and how many; else the newest open file."""
        places: Counter[int] = Counter()
        for thread in process.threads.values():
            line = read_kept(thread.syscall_fd)
            state, _, place = self._resolver.explain(process, thread, line, now_ns)
            if place and state in _STORAGE:
                places[place] += 1
        if places:
            return places.most_common(1)[0]
        fds = sorted(list_numbers(f"/proc/{process.pid}/fd"), reverse=True)
        targets = (self._descriptors.follow_if_file(process, fd) for fd in fds[:_MAX_FDS])
        newest = (each.place for each in targets if each.sort is DescriptorKind.FILE and each.place)
        return next(newest, 0), 0


def _read_io(pid: int) -> tuple[int, int, int] | None:
    """Bytes read from and written to devices, and calls; None if the kernel refuses."""
    try:
        content = b"\n" + read_once(f"/proc/{pid}/io")
    except OSError:
        return None
    names = ("read_bytes:", "write_bytes:", "syscr:", "syscw:")
    read, write, syscr, syscw = (find_field(content, name) or 0 for name in names)
    return read, write, syscr + syscw


def _is_noticeable(row: OtherProcess) -> bool:
    seconds = row.interval_ns / 1e9
    return (
        row.cpu_ns >= NOTICEABLE_CPU_SHARE * row.interval_ns
        or row.disk_read_bytes + row.disk_write_bytes >= NOTICEABLE_BYTES_PER_S * seconds
        or row.calls >= NOTICEABLE_CALLS_PER_S * seconds
    )
