"""Thread states, some tens of times a second: who runs, who is blocked, in what and on what.

Main threads are sampled in every round. Helper threads share a few samples a round: those that
used CPU or were blocked on input in the last second first, the idle ones now and then. The choice
is made anew once a second, never from one sample to the next, so that within a window each thread
is sampled evenly and its shares are unbiased; counts of different threads are not comparable.
"""

from collections import Counter
from collections.abc import Iterator

from fuelline.record.samplers.blocked import NOWHERE, Resolver, Verdict, explain_without_call
from fuelline.record.samplers.phases import Phases
from fuelline.record.samplers.procfs import REFUSED, Read, read_kept
from fuelline.record.samplers.tree import Process, Thread, Tree
from fuelline.schema.samples import Blind, ThreadState

WINDOW_NS = 1_000_000_000
BUSY_HELPERS = 12
"""Samples a round for helper threads that did something in the last second."""
IDLE_EVERY = 4
"""Rounds between two samples of idle helper threads."""
REFUSED_ROUNDS = 60
"""Refusals in a row before we call it so: a process may allow us only after it has started."""
_INPUT_STATES = frozenset({"read", "metadata", "fault", "socket", "write"})

BLIND = Blind(
    "the system calls that threads are blocked in",
    "the kernel refuses /proc/PID/task/TID/syscall (ptrace scope or another user's process)",
    "naming files and mounts; slow storage is told from slow CPU only by scheduler state",
)

_Key = tuple[int, int, int, str, str, int]


class ThreadStates:
    """Counts thread states per window; `drain` gives the rows of windows that are over."""

    def __init__(
        self, tree: Tree, phases: Phases, resolver: Resolver, read: Read = read_kept
    ) -> None:
        self._tree = tree
        self._phases = phases
        self._resolver = resolver
        self._read = read
        self._window_ns = 0
        self._counts: Counter[_Key] = Counter()
        self._busy: list[tuple[Process, Thread]] = []
        self._idle: list[tuple[Process, Thread]] = []
        self._round = 0
        self._is_blind = False
        self._rows: list[ThreadState | Blind] = []

    def choose_helpers(self) -> None:
        """Sort helper threads into busy and idle ones; once a second."""
        helpers = [
            (process, thread)
            for process in self._tree.processes.values()
            for thread in process.threads.values()
            if thread.tid != process.pid
        ]
        self._busy = [pair for pair in helpers if _is_worth_a_look(pair[1])]
        self._idle = [pair for pair in helpers if not _is_worth_a_look(pair[1])]

    def sample(self, now_ns: int) -> None:
        """One round over the job."""
        window_ns = now_ns - now_ns % WINDOW_NS
        if window_ns != self._window_ns:
            self._close_window()
            self._window_ns = window_ns
        for process in self._tree.processes.values():
            main = process.threads.get(process.pid)
            if main is not None:
                self._count(process, main, now_ns)
        for process, thread in self._next_helpers():
            self._count(process, thread, now_ns)
        self._round += 1

    def drain(self) -> list[ThreadState | Blind]:
        """The rows of the windows that have ended."""
        rows, self._rows = self._rows, []
        return rows

    def finish(self) -> None:
        """End the window that is still open, and say what was refused until the end."""
        self._close_window()
        for process in self._tree.processes.values():
            if process.refusals:
                self._note_refusal(process)

    def _count(self, process: Process, thread: Thread, now_ns: int) -> None:
        phase = self._phases.read(process)
        try:
            state, call, place = self._explain(process, thread, now_ns)
        except OSError:  # the thread has ended
            return
        thread.last_state = state
        self._counts[process.pid, thread.tid, phase, state, call, place] += 1

    def _explain(self, process: Process, thread: Thread, now_ns: int) -> Verdict:
        try:
            line = self._read(thread.syscall_fd)
        except REFUSED:
            process.refusals += 1
            if process.refusals == REFUSED_ROUNDS:
                self._note_refusal(process)
            return explain_without_call(process, thread)
        process.refusals = 0
        return self._resolver.explain(process, thread, line, now_ns) if line else NOWHERE

    def _note_refusal(self, process: Process) -> None:
        """Say it once, and only of a process whose work matters, not of a wrapper script."""
        if not self._is_blind and is_python(process):
            self._is_blind = True
            self._rows.append(BLIND)

    def _next_helpers(self) -> Iterator[tuple[Process, Thread]]:
        yield from _rotate(self._busy, self._round * BUSY_HELPERS, BUSY_HELPERS)
        if self._round % IDLE_EVERY == 0:
            yield from _rotate(self._idle, self._round // IDLE_EVERY, 1)

    def _close_window(self) -> None:
        self._rows += [
            ThreadState(self._window_ns, *key, count) for key, count in self._counts.items()
        ]
        self._counts.clear()


def is_python(process: Process) -> bool:
    """By its name: `python3.11`, or what PyTorch calls its threads (`pt_main_thread`, ...)."""
    return process.stat.name.startswith(("python", "pt_"))


def _is_worth_a_look(thread: Thread) -> bool:
    return thread.is_busy or thread.last_state in _INPUT_STATES


def _rotate(
    pairs: list[tuple[Process, Thread]], start: int, count: int
) -> Iterator[tuple[Process, Thread]]:
    """`count` of the pairs, each at most once, beginning where the last round ended."""
    for step in range(min(count, len(pairs))):
        yield pairs[(start + step) % len(pairs)]
