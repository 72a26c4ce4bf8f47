"""Thread states, some tens of times a second: who runs, who is blocked, in what and on what.

Trainers' main threads are sampled in every round; those of other processes (loader workers) take
turns, as do helper threads: those that used CPU or were blocked on input in the last second first,
the idle ones now and then. Who is in which group is settled once a second, never from one sample to
the next, so that within a window each thread is sampled evenly and its shares are unbiased. Counts
of different threads are not comparable. Price of a round: about 15 us per thread with cold caches.
"""

from collections.abc import Iterator

from fuelline.record.samplers.blocked import Resolver, Verdict, explain_without_call
from fuelline.record.samplers.phases import Phases
from fuelline.record.samplers.procfs import REFUSED, Read, read_kept
from fuelline.record.samplers.tree import Process, Thread, Tree
from fuelline.schema.run.samples import Blind, ThreadState

WINDOW_NS = 1_000_000_000
TRAINERS = 4
WORKERS = 4
BUSY_HELPERS = 2
"""Samples a round for trainers, for other main threads and for helper threads that do something."""
IDLE_EVERY = 4
"""Rounds between two samples of idle helper threads."""
ROUNDS_PLANNED = 8
REFUSED_ROUNDS = 60
"""Refusals in a row before we call it so: a process may allow us only after it has started."""
_INPUT_STATES = frozenset({"read", "metadata", "fault", "socket", "write"})

BLIND = Blind(
    "the system calls that threads are blocked in",
    "the kernel refuses /proc/PID/task/TID/syscall (ptrace scope or another user's process)",
    "naming files and mounts; only the scheduler's state separates slow storage from slow CPU",
)

RAY = "ray::"
_WITHOUT_TASK = tuple(
    RAY + name for name in ("IDLE", "Dashboard", "RuntimeEnv", "SPILL", "RESTORE")
)

_Pair = tuple[Process, Thread]
_Key = tuple[Thread, int, Verdict]


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
        self._counts: dict[_Key, int] = {}
        self._trainers: list[_Pair] = []
        self._workers: list[_Pair] = []
        self._busy: list[_Pair] = []
        self._idle: list[_Pair] = []
        self._rounds: list[list[_Pair]] = []
        self._round = 0
        self._is_blind = False
        self._rows: list[ThreadState | Blind] = []

    def sort_threads(self) -> None:
        """Settle who takes turns with whom; whenever the tree or the phases have changed."""
        self._trainers, self._workers, self._busy, self._idle = [], [], [], []
        for process in self._tree.processes.values():
            for thread in process.threads.values():
                self._group_of(process, thread).append((process, thread))
        self._rounds = []

    def _group_of(self, process: Process, thread: Thread) -> list[_Pair]:
        if thread.tid == process.pid:
            return self._trainers if process.has_own_phase else self._workers
        if thread.is_at_work and not process.has_own_phase:
            return self._workers  # as Ray's, whose main threads only wait for tasks
        is_busy = thread.is_busy or thread.is_at_work or thread.last_state in _INPUT_STATES
        return self._busy if is_busy else self._idle

    def sample(self, now_ns: int) -> None:
        """One round over the job."""
        window_ns = now_ns - now_ns % WINDOW_NS
        if window_ns != self._window_ns:
            self._close_window()
            self._window_ns = window_ns
        if not self._rounds:
            self._plan_rounds()
        phases: dict[int | None, int] = {}
        for process, thread in self._rounds.pop():
            if process.phase_fd not in phases:
                phases[process.phase_fd] = self._phases.read(process)
            try:
                verdict = self._explain(process, thread, now_ns)
            except OSError:  # the thread has ended, and others may have come in its place
                process.has_other_threads = True
                continue
            thread.last_state = verdict[0]
            key = (thread, phases[process.phase_fd], verdict)
            self._counts[key] = self._counts.get(key, 0) + 1

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

    def _explain(self, process: Process, thread: Thread, now_ns: int) -> Verdict:
        try:
            line = self._read(thread.syscall_fd)
        except REFUSED:
            process.refusals += 1
            if process.refusals == REFUSED_ROUNDS:
                self._note_refusal(process)
            return explain_without_call(process, thread)
        process.refusals = 0
        return self._resolver.explain(process, thread, line, now_ns)

    def _note_refusal(self, process: Process) -> None:
        """Say it once, and only of a process whose work matters, not of a wrapper script."""
        if not self._is_blind and is_python(process):
            self._is_blind = True
            self._rows.append(BLIND)

    def _plan_rounds(self) -> None:
        """Settle some rounds at once: choosing with cold caches costs as much as sampling."""
        for _ in range(ROUNDS_PLANNED):
            self._rounds.insert(0, list(self._next_threads()))
            self._round += 1

    def _next_threads(self) -> Iterator[_Pair]:
        yield from _rotate(self._trainers, self._round * TRAINERS, TRAINERS)
        yield from _rotate(self._workers, self._round * WORKERS, WORKERS)
        yield from _rotate(self._busy, self._round * BUSY_HELPERS, BUSY_HELPERS)
        if self._round % IDLE_EVERY == 0:
            yield from _rotate(self._idle, self._round // IDLE_EVERY, 1)

    def _close_window(self) -> None:
        self._rows += [
            ThreadState(self._window_ns, thread.pid, thread.tid, phase, *verdict, count)
            for (thread, phase, verdict), count in self._counts.items()
        ]
        self._counts.clear()


def is_python(process: Process) -> bool:
    """By its name: `python3.11`, what PyTorch calls its threads (`pt_main_thread`), or Ray's."""
    return process.stat.name.startswith(("python", "pt_", RAY))


def has_ray_task(process: Process) -> bool:
    """Whether it is a worker of Ray that has been given a task: `ray::MapWorker`."""
    name = process.stat.name
    return name.startswith(RAY) and not name.startswith(_WITHOUT_TASK)


def _rotate(pairs: list[_Pair], start: int, count: int) -> Iterator[_Pair]:
    """`count` of the pairs, each at most once, beginning where the last round ended."""
    for step in range(min(count, len(pairs))):
        yield pairs[(start + step) % len(pairs)]
