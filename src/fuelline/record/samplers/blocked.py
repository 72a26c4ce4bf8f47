"""From one line of /proc/PID/task/TID/syscall to what the thread is doing, and where.

The line is `running`, or `-1 sp pc` for a thread blocked outside any call (a page fault), or the
number of the call with its six arguments, stack and program counter. What must stay true: only
memory that the call itself points to is read, and nothing is ever stopped or written to.

Also here: which data file a process has mapped into its memory.

A thread blocked in a page fault shows no address, so the file is not known for sure. But data sets
that are read by faults (numpy.memmap, Arrow, token files) are by far the largest thing that such a
process maps: the file with most mapped bytes is taken. Libraries, which are mapped to be executed,
and memory without a file do not count; nor do small files, such as locales.
"""

import os
import struct
from collections.abc import Sequence

from fuelline.record.samplers.descriptors import UNKNOWN, DescriptorKind, Descriptors, Target
from fuelline.record.samplers.procfs import find_text
from fuelline.record.samplers.syscalls import HERE, Shape, SystemCall
from fuelline.record.samplers.tree import Process, Thread

Verdict = tuple[str, str, int]
"""`samples.State`, system call, place."""

RUNNING_LINE = b"running\n"
RUNNING: Verdict = ("running", "", 0)
FAULT: Verdict = ("fault", "", 0)
NOWHERE: Verdict = ("other", "", 0)

_POLLFD = struct.Struct("<ihh")
_MAX_POLLED = 64
_MAX_PATH_BYTES = 4096
_MEMORY_PAGE_BYTES = 4096
_SAME_LINE_NS = 5_000_000_000
"""A thread that shows the same line is not looked into again for this long."""
_SAME_MAPS_NS = {False: 3_000_000_000, True: 30_000_000_000}
"""What a process maps is read so rarely, by whether a data file was found: a thousand lines take
milliseconds."""
_MAX_FAULTING = 4096

_PIPE_LOOKS = 3
"""How often a new place is tested for being a named pipe; one look may come too late."""

_SIMPLE = {
    Shape.LOCK: "lock",
    Shape.SLEEP: "sleep",
    Shape.OTHER: "other",
    Shape.ASYNC_IO: "read",
    Shape.WRITE_ANY: "write",
}
_FILE_STATES = {
    Shape.READ_FD: "read",
    Shape.READ_FROM: "read",
    Shape.WRITE_FD: "write",
    Shape.META_FD: "metadata",
    Shape.FILE_LOCK: "lock",
    Shape.SOCKET_FD: "socket",
}
_STATES = {
    DescriptorKind.PIPE: "pipe",
    DescriptorKind.SOCKET: "socket",
    DescriptorKind.DEVICE: "other",
}
_POLLS = frozenset({Shape.POLL, Shape.SELECT, Shape.EPOLL})
_LASTING = _POLLS | _SIMPLE.keys()
"""Shapes whose verdict stays right while the line stays the same; descriptors are reused."""


class Resolver:
    """Explains blocked threads; one for the whole job."""

    def __init__(self, descriptors: Descriptors, calls: dict[int, SystemCall] = HERE) -> None:
        self._descriptors = descriptors
        self._calls = calls
        self._looks: dict[int, int] = {}
        self._named_pipes: set[int] = set()
        self._faults: dict[int, tuple[Verdict, int]] = {}

    def explain(self, process: Process, thread: Thread, line: bytes, now_ns: int) -> Verdict:
        """What a thread does that shows this line."""
        if line == RUNNING_LINE:
            return RUNNING
        if line == thread.blocked_line and now_ns < thread.blocked_until_ns:
            return thread.blocked_verdict
        number, _, arguments = line.partition(b" ")
        if number == b"-1":
            return self._explain_fault(process, now_ns)
        if not number.isdigit():  # the thread is just ending
            return NOWHERE
        call = self._calls.get(int(number)) or SystemCall(number.decode(), Shape.OTHER)
        verdict = self._explain_call(process, thread, call, arguments)
        if call.shape in _LASTING:
            thread.blocked_verdict = verdict
            thread.blocked_line, thread.blocked_until_ns = line, now_ns + _SAME_LINE_NS
        return verdict

    def _explain_fault(self, process: Process, now_ns: int) -> Verdict:
        verdict, until_ns = self._faults.get(process.pid, (FAULT, 0))
        if now_ns >= until_ns:
            path = find_mapped_data(process)
            place = self._descriptors.follow_path(process, -1, path).place if path else 0
            verdict = ("fault", "", place)
            if len(self._faults) >= _MAX_FAULTING:
                self._faults.clear()
            self._faults[process.pid] = (verdict, now_ns + _SAME_MAPS_NS[bool(place)])
        return verdict

    def _explain_call(
        self, process: Process, thread: Thread, call: SystemCall, arguments: bytes
    ) -> Verdict:
        if call.shape in _SIMPLE:
            return (_SIMPLE[call.shape], call.name, 0)
        words = [int(word, 16) for word in arguments.split()[:6]]
        if call.shape in _POLLS:
            return self._explain_poll(process, call, words)
        if call.shape in _FILE_STATES:
            return self._explain_descriptor(process, thread, call, words)
        return self._explain_path(process, thread, call, words)

    def _explain_descriptor(
        self, process: Process, thread: Thread, call: SystemCall, words: Sequence[int]
    ) -> Verdict:
        target = self._descriptors.follow(process, words[call.shape is Shape.READ_FROM])
        if self._is_named_pipe(process, thread, target.place):
            return ("pipe", call.name, target.place)
        state = _STATES.get(target.sort, _FILE_STATES[call.shape])
        return (state, call.name, target.place)

    def _explain_path(
        self, process: Process, thread: Thread, call: SystemCall, words: Sequence[int]
    ) -> Verdict:
        is_relative = call.shape is Shape.META_AT
        path = _read_path(process, words[1 if is_relative else 0])
        if path is None:
            return ("metadata", call.name, 0)
        directory_fd = _as_signed(words[0]) if is_relative else -1
        if not path:
            target = self._descriptors.follow(process, directory_fd)
        else:
            target = self._descriptors.follow_path(process, directory_fd, path)
        if self._is_named_pipe(process, thread, target.place):
            return ("pipe", call.name, target.place)
        return ("metadata", call.name, target.place)

    def _is_named_pipe(self, process: Process, thread: Thread, place: int) -> bool:
        """A named pipe has an ordinary path; where the kernel waits separates it from a file."""
        looks = self._looks.get(place, 0)
        if place and looks < _PIPE_LOOKS:
            self._looks[place] = looks + 1
            if _waits_for_pipe(process, thread):
                self._named_pipes.add(place)
        return place in self._named_pipes

    def _explain_poll(self, process: Process, call: SystemCall, words: Sequence[int]) -> Verdict:
        fds = _list_polled(process, call.shape, words)
        if fds is None:
            return ("other", call.name, 0)
        if not fds:
            return ("sleep", call.name, 0)
        targets = [self._descriptors.follow(process, fd) for fd in fds[:_MAX_POLLED]]
        chosen = _choose(targets)
        return (_STATES.get(chosen.sort, "other"), call.name, chosen.place)


def _choose(targets: Sequence[Target]) -> Target:
    """A remote peer among the polled descriptors is what is waited for; pipes alone mean idle."""
    for sort in (DescriptorKind.SOCKET, DescriptorKind.PIPE, DescriptorKind.DEVICE):
        for target in targets:
            if target.sort is sort:
                return target
    return UNKNOWN


def _list_polled(process: Process, shape: Shape, words: Sequence[int]) -> list[int] | None:
    """The descriptors that a poll, select or epoll call watches; None if it cannot be known."""
    if shape is Shape.EPOLL:
        text = find_text(f"fdinfo/{words[0]}", process.dir_fd)
        lines = [line.split() for line in (text or "").splitlines() if line.startswith("tfd:")]
        return None if text is None else [int(fields[1]) for fields in lines]
    if shape is Shape.SELECT:
        return _list_selected(process, words)
    count = min(words[1], _MAX_POLLED)
    if count == 0:
        return []
    array = read_memory(process, words[0], count * _POLLFD.size)
    if array is None or len(array) < count * _POLLFD.size:
        return None
    return [fd for fd, _, _ in _POLLFD.iter_unpack(array) if fd >= 0]


def _list_selected(process: Process, words: Sequence[int]) -> list[int] | None:
    size_bytes = (min(words[0], 1024) + 7) // 8
    fds: list[int] = []
    for pointer in filter(None, words[1:4] if size_bytes else ()):
        bits = read_memory(process, pointer, size_bytes)
        if bits is None:
            return None
        mask = int.from_bytes(bits, "little")
        fds += [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    return fds


def read_memory(process: Process, address: int, size_bytes: int) -> bytes | None:
    """Bytes of the job's memory that a system call was given a pointer to."""
    try:
        fd = os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process.dir_fd)
    except OSError:
        return None
    try:
        return os.pread(fd, size_bytes, address)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(fd)


def _read_path(process: Process, address: int) -> str | None:
    """The path that a pointer leads to, read page by page: the next page may not exist."""
    first = min(_MEMORY_PAGE_BYTES - address % _MEMORY_PAGE_BYTES, 512)
    content = read_memory(process, address, first)
    if content is not None and b"\0" not in content:
        more = read_memory(process, address + first, _MAX_PATH_BYTES - first)
        content += more or b""
    if content is None or b"\0" not in content:
        return None
    return os.fsdecode(content.partition(b"\0")[0])


def _as_signed(word: int) -> int:
    """A descriptor argument as the int it is: AT_FDCWD shows as 0xffffff9c."""
    low = word & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low


def _waits_for_pipe(process: Process, thread: Thread) -> bool:
    waits_in = find_text(f"task/{thread.tid}/wchan", process.dir_fd) or ""
    return "pipe" in waits_in or "fifo" in waits_in or waits_in == "wait_for_partner"


_WAITS = (
    ("futex", "lock"),
    ("pipe", "pipe"),
    ("fifo", "pipe"),
    ("unix_stream", "pipe"),
    ("nanosleep", "sleep"),
    ("tcp", "socket"),
    ("sk_wait", "socket"),
    ("inet", "socket"),
    ("folio_wait", "read"),
    ("io_schedule", "read"),
    ("rpc_wait", "read"),
    ("nfs", "read"),
    ("request_wait_answer", "read"),
    ("fuse", "read"),
    ("blk", "read"),
)


def explain_without_call(process: Process, thread: Thread) -> Verdict:
    """The coarser answer where `syscall` is refused: the scheduler state and where it waits."""
    content = find_text(f"task/{thread.tid}/stat", process.dir_fd)
    if content is None:
        return NOWHERE
    state = content.rpartition(")")[2].split()[0]
    if state == "R":
        return RUNNING
    waits_in = find_text(f"task/{thread.tid}/wchan", process.dir_fd) or ""
    for part, verdict in _WAITS:
        if part in waits_in:
            return (verdict, "", 0)
    return ("read", "", 0) if state == "D" else NOWHERE


_SMALL_BYTES = 1 << 20


def find_mapped_data(process: Process) -> str | None:
    """The path of the largest mapped data file; None if there is none or maps are refused."""
    sizes: dict[str, int] = {}
    programs = set()
    for line in (find_text("maps", process.dir_fd) or "").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[5].startswith("/") or fields[5].startswith("/dev/"):
            continue
        start, _, end = fields[0].partition("-")
        path = fields[5]
        sizes[path] = sizes.get(path, 0) + int(end, 16) - int(start, 16)
        if "x" in fields[1]:
            programs.add(path)
    data = {path: size for path, size in sizes.items() if path not in programs}
    largest = max(data, key=lambda path: data[path], default=None)
    return largest if largest is not None and data[largest] >= _SMALL_BYTES else None
