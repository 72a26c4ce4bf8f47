"""Which line of Python the job's threads are in: py-spy, in short bursts within a CPU budget.

One py-spy a process, for the trainer and a few workers in turns: whatever the size of the job that
costs 0.03 s of CPU for 16 samples of one process and 0.04 s for 50, most of it to begin with, while
`--subprocesses` costs 0.3 s for nine processes and more with each (bench/observer_cost.py). It
never stops the job (`--nonblocking`).

py-spy runs at low priority: its bursts are the only heavy thing we do, and a late stack is still a
stack. The observer itself does not: it would then sample only when a core is free, and so miss the
very moments in which cores are short.

Also here: the text of the lines that stacks show, read while the job runs and on its own host.

Later it could not be known any more whose file a frame names, and a recording from elsewhere would
make its reader open any file at all. So only here, and only what is Python source of the job: a
regular file named like one, or the script on the command line, of a sane size and without zeros.
A file is read when it is first seen (0.3 ms for 100 kB) and again only for lines that are new.
"""

import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fuelline.schema.files import open_below
from fuelline.schema.memory import make_memory
from fuelline.schema.redaction import redact, redact_code
from fuelline.schema.run.samples import Blind, SourceLine, StackSample

SAMPLES_PER_S = 25
"""A run of a quarter of a minute has one burst or two: they separate decode from transform."""
ALONE_PER_S = 50
"""Where there are no workers: the trainer's stacks then say how long it makes batches itself."""
BURST_S = 2
MAX_PROCESSES = 4
MAX_TRAINERS = 1
FIRST_DELAY_NS = 2_000_000_000
"""From the first sign of training to the first burst: caches and workers warm up meanwhile."""
BUDGET_FIRST_S = 0.16
BUDGET_SHARE = 0.0007
"""CPU seconds allowed at once, and per second of the job after that."""
EARLY_BUDGET_FIRST_S = 0.5
EARLY_BUDGET_SHARE = 0.004
"""The same until training begins, and in jobs that train nothing."""
EARLY_PROCESSES = 2
FAILURES_TO_GIVE_UP = 6
STOP_S = 2.0
"""How long the bursts of a job that has ended may take to write what they have: py-spy notices at
its next look, and looks at random moments."""

_NICENESS = 5
"""A third of the weight of a job's thread. With a tenth, two processes that keep both cores busy
left a burst of a short job without a single stack."""
_OVERDUE_NS = 15_000_000_000
_NS = 1_000_000_000
_RECORD = re.compile(
    r"^thread \((?P<tid>\w+)\)(?P<name>[^;]*);(?P<frames>.*) (?P<count>\d+)$", re.DOTALL
)
_BETWEEN_RECORDS = re.compile(r"\n(?=thread \()")
_BETWEEN_FRAMES = re.compile(r"(?<=\d\));")
_redact_once = lru_cache(4096)(redact)
"""Stacks share most of their frames."""
_FORBIDS = "naming the line of user code where the time goes"


_WAITING = re.compile(
    r"/(threading|queue|selectors)\.py:\d+\)$|/(asyncio|concurrent|multiprocessing)/[^()]*:\d+\)$"
)
"""Ends a stack that waits for another thread or process."""


def is_at_work(stack: StackSample) -> bool:
    """Whether a thread did more than wait for another one, as far as its stack tells."""
    return bool(stack.frames) and _WAITING.search(stack.frames[-1]) is None


def find_py_spy() -> str | None:
    """The binary that came with our own interpreter, else the one on PATH."""
    folders = [Path(sys.executable).parent, *map(Path, os.get_exec_path())]
    found = (folder / "py-spy" for folder in folders)
    return next((str(path) for path in found if os.access(path, os.X_OK)), None)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How long and how often a burst looks, and what it writes."""

    seconds: int
    per_s: int
    in_order: bool = False
    """Each look after the other, rather than how often each stack was seen."""


_EARLY = (
    (8 * 10**9, _Shape(4, 20, in_order=True)),
    (70 * 10**9, _Shape(20, 4, in_order=True)),
    (1 << 62, _Shape(60, 2, in_order=True)),
)
"""By the age of the job. One look costs 0.5 ms, of which imports and compilers with their hundred
frames take most; long bursts of few looks leave no gaps (bench/start_up.py)."""


@dataclass(slots=True)
class _Burst:
    pid: int
    process: subprocess.Popen[bytes]
    output_fd: int
    errors_fd: int
    from_ns: int
    shape: _Shape
    cut_ns: int = 0
    """When it was asked to end before its time; 0 if it was not."""


class Stacks:
    """Starts bursts when they are due and affordable; gives their stacks when they are done."""

    def __init__(self, binary: str | None) -> None:
        self._binary = binary
        self._bursts: list[_Burst] = []
        self._first_ns: int | None = None
        self._turn = 0
        self._price_s = 0.0
        self._spent_s = 0.0
        self._spent_before_s = 0.0
        self._spent_idly_s = 0.0
        self._is_training = False
        self._born_ns: int | None = None
        self._has_started = True
        self._failures = 0
        self._is_over = False
        self._blind: list[Blind] = []
        self._sources = Sources()
        self._budget_share = BUDGET_SHARE

    def spend_more(self, core_share: float) -> None:
        """A job that has no hooks tells more by its stacks: a larger share of a core for them."""
        self._budget_share = core_share

    @property
    def pids(self) -> frozenset[int]:
        """The py-spy processes that run now."""
        return frozenset(burst.process.pid for burst in self._bursts)

    def begin_training(self, now_ns: int) -> None:
        """Count the budget from here on: a slow start must not have used it up."""
        if not self._is_training:
            self._is_training = True
            self._first_ns = now_ns + FIRST_DELAY_NS
            self._spent_idly_s = self._spent_s
            self._has_started = False
            for burst in self._bursts:
                burst.cut_ns = now_ns
                burst.process.send_signal(signal.SIGINT)  # it writes what it has

    def start_early(self, now_ns: int, pids: list[int]) -> None:
        """Begin a burst in a job that does not train yet, or never will, if it is time.

        What is paid here is not taken from the training's budget.
        """
        if self._bursts or self._is_over or not pids:
            return
        self._born_ns = now_ns if self._born_ns is None else self._born_ns
        age_ns = now_ns - self._born_ns
        budget_s = EARLY_BUDGET_FIRST_S + EARLY_BUDGET_SHARE * age_ns / _NS
        if self._spent_s + self._price_s > budget_s:
            return
        self._spent_before_s = self._spent_s
        shape = next(shape for until_ns, shape in _EARLY if age_ns < until_ns)
        for pid in pids[:EARLY_PROCESSES]:
            self._start(pid, now_ns, shape)

    def start_if_due(self, now_ns: int, trainers: list[int], workers: list[int]) -> None:
        """Begin a burst over trainers and the next few workers, if it is time."""
        if self._bursts or self._is_over or not (trainers or workers):
            return
        if self._first_ns is None:
            self._first_ns = now_ns + FIRST_DELAY_NS
        budget_s = BUDGET_FIRST_S + self._budget_share * (now_ns - self._first_ns) / _NS
        spent_s = self._spent_s - self._spent_idly_s
        is_too_much = self._has_started and spent_s + self._price_s > budget_s
        if now_ns < self._first_ns or is_too_much:
            return  # one burst a job there is, whatever a crowded machine makes of its price
        self._spent_before_s = self._spent_s
        self._has_started = True
        per_s = SAMPLES_PER_S if workers else ALONE_PER_S
        for pid in self._choose(trainers, workers):
            self._start(pid, now_ns, _Shape(BURST_S, per_s))

    def collect(self, now_ns: int) -> list[StackSample | SourceLine | Blind]:
        """The stacks of bursts that have ended."""
        rows: list[StackSample | SourceLine | Blind] = []
        for burst in list(self._bursts):
            if burst.process.poll() is not None:
                rows += self._finish(burst, now_ns)
                self._settle()
            elif now_ns - burst.from_ns > 2 * _OVERDUE_NS + burst.shape.seconds * _NS:
                burst.process.kill()
            elif now_ns - burst.from_ns > _OVERDUE_NS + burst.shape.seconds * _NS:
                burst.process.send_signal(signal.SIGINT)  # it writes what it has
        blind, self._blind = self._blind, []
        return [*rows, *blind]

    def stop(self, now_ns: int) -> list[StackSample | SourceLine | Blind]:
        """End running bursts and keep what they have: py-spy writes its stacks on SIGINT."""
        for burst in self._bursts:
            burst.cut_ns = burst.cut_ns or now_ns
            burst.process.send_signal(signal.SIGINT)
        deadline_s = time.monotonic() + STOP_S
        for burst in self._bursts:
            _wait_or_kill(burst.process, deadline_s - time.monotonic())
        return self.collect(now_ns)

    def _choose(self, trainers: list[int], workers: list[int]) -> list[int]:
        chosen = _rotate(trainers, self._turn, MAX_TRAINERS if workers else MAX_PROCESSES)
        chosen += _rotate(workers, self._turn, MAX_PROCESSES - len(chosen))
        self._turn += MAX_PROCESSES
        return chosen

    def _start(self, pid: int, now_ns: int, shape: _Shape) -> None:
        if self._binary is None:
            self._give_up("py-spy is not installed beside this interpreter")
            return
        made: list[int] = []
        try:  # memory, not the disk: it may be full, and is the user's
            made.append(output_fd := make_memory("stacks"))
            made.append(errors_fd := make_memory("errors"))
            process = subprocess.Popen(
                [*_command(self._binary, pid, shape), "--output", f"/proc/self/fd/{output_fd}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors_fd,
                pass_fds=(output_fd,),
            )
        except OSError as error:
            for descriptor in made:
                os.close(descriptor)
            self._give_up(f"py-spy does not start: {error.strerror}")
            return
        self._bursts.append(_Burst(pid, process, output_fd, errors_fd, now_ns, shape))
        self._sources.meet(pid)
        try:
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
        except OSError:  # it has ended already
            return

    def _finish(self, burst: _Burst, now_ns: int) -> Iterator[StackSample | SourceLine]:
        self._bursts.remove(burst)
        output, errors = _drain(burst.output_fd), _drain(burst.errors_fd)
        if output:
            self._failures = 0
            stacks = _read_burst(output, burst, now_ns)
            yield from stacks
            yield from self._sources.read(stacks, with_libraries=not burst.shape.in_order)
            return
        self._failures += 1
        if "ermission" in errors or "not permitted" in errors:
            self._give_up("the kernel does not let py-spy read the job's memory (ptrace scope)")
        elif self._failures == FAILURES_TO_GIVE_UP:
            self._give_up(f"py-spy failed {self._failures} times: {errors.strip()[:200]}")

    def _give_up(self, why: str) -> None:
        if not self._is_over:
            self._blind.append(Blind("Python stacks", redact(why), _FORBIDS))
        self._is_over = True

    def _settle(self) -> None:
        """Note what the burst has cost so far: the estimate for the next one."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._spent_s = usage.ru_utime + usage.ru_stime
        self._price_s = self._spent_s - self._spent_before_s


def _wait_or_kill(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    try:
        process.wait(timeout=max(timeout_s, 0))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _rotate(pids: list[int], turn: int, count: int) -> list[int]:
    return [pids[(turn + step) % len(pids)] for step in range(min(count, len(pids)))]


def _command(binary: str, pid: int, shape: _Shape) -> list[str]:
    rates = ["--rate", str(shape.per_s), "--duration", str(shape.seconds)]
    written = ["--format", "speedscope" if shape.in_order else "raw"]
    shown = ["--threads", "--idle", "--full-filenames"]
    return [binary, "record", "--nonblocking", "--pid", str(pid), *rates, *written, *shown]


def _read_burst(output: str, burst: _Burst, now_ns: int) -> list[StackSample]:
    if not burst.shape.in_order:
        until_ns = min(now_ns, burst.from_ns + BURST_S * 2 * _NS)
        return list(parse_raw(output, burst.pid, burst.from_ns, until_ns))
    start_ns = burst.from_ns + _STARTING_NS
    planned_ns = start_ns + burst.shape.seconds * _NS
    until_ns = min(burst.cut_ns or now_ns, now_ns)
    if planned_ns < until_ns < planned_ns + _NOTICED_NS:
        until_ns = planned_ns
    return list(parse_stays(output, burst.pid, start_ns, until_ns))


def _drain(fd: int) -> str:
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")


def parse_raw(text: str, pid: int, from_ns: int, until_ns: int) -> Iterator[StackSample]:
    """Parse lines `thread (12): MainThread;main (/a.py:3);load (/b c.py:7) 5`.

    Names of threads, functions and files are the user's: spaces, semicolons and line breaks occur.
    """
    for record in _BETWEEN_RECORDS.split(text.rstrip("\n")):
        match = _RECORD.match(record)
        if match is not None:
            # Python 3.10 keeps no kernel ids of threads; py-spy would stop the job for them.
            # The main thread has that of the process and is known by its name alone.
            main = pid if match["name"] == ": MainThread" else 0
            tid = int(match["tid"]) if match["tid"].isdigit() else main
            frames = [*map(_redact_once, _BETWEEN_FRAMES.split(match["frames"]))]
            yield StackSample(from_ns, until_ns, pid, tid, frames, int(match["count"]))


_THREAD = re.compile(r"^Thread (?P<tid>\w+)(?: \"(?P<name>.*)\")?$", re.DOTALL)
_STARTING_NS = 50_000_000
"""From starting py-spy to its first look."""
_NOTICED_NS = 1_000_000_000
"""The end of a py-spy is noticed twice a second."""


def parse_stays(text: str, pid: int, from_ns: int, until_ns: int) -> Iterator[StackSample]:
    r"""Parse a speedscope file: the looks at each thread in order; what stays the same is one row.

        {"shared": {"frames": [{"name": "main", "file": "/a.py", "line": 3}, ...]},
         "profiles": [{"name": "Thread 12 \"MainThread\"", "samples": [[0, 1], [0, 1], [0, 2]]}]}

    They are spread evenly over the burst: of a thread that changes its stack while it is looked at
    some looks fail and are left out, and a py-spy that has to wait for a core looks less often.
    """
    try:
        found = json.loads(text)
        names = [
            _redact_once(f"{each['name']} ({each['file']}:{each['line']})")
            for each in found["shared"]["frames"]
        ]
        profiles = [(each["name"], each["samples"]) for each in found["profiles"]]
    except (ValueError, KeyError, TypeError):  # it was ended while it wrote
        return
    for name, samples in profiles:
        match = _THREAD.match(name)
        if match is None or not samples or until_ns <= from_ns:
            continue
        main = pid if match["name"] == "MainThread" else 0
        tid = int(match["tid"]) if match["tid"].isdigit() else main
        at_ns, seen = from_ns, 0
        for frames, looks in itertools.groupby(samples):
            count = len(list(looks))
            seen += count
            end_ns = from_ns + (until_ns - from_ns) * seen // len(samples)
            shown = [names[number] for number in frames[1:]]  # the first names the thread
            yield StackSample(at_ns, end_ns, pid, tid, shown, count)
            at_ns = end_ns


MOST_LINES = 2000
"""Of one run; a training loop shows some hundreds."""
MOST_FILE_BYTES = 4 * 1024 * 1024
MOST_TEXT = 200
_MOST_WORDS = 16
_MOST_PROCESSES = 64
_FRAME = re.compile(r"\((?P<file>[^\n]*):(?P<line>\d{1,9})\)$")
"""The end of `function (file:line)`, as py-spy prints it."""

_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3|^<")

_IMPORTER = "<frozen importlib"

_Stamp = tuple[int, int, int]
_UNREAD: _Stamp = (0, 0, 0)


class Sources:
    """Gives each line once."""

    def __init__(self) -> None:
        self._reported: set[tuple[str, int]] = set()
        self._stamps: dict[str, _Stamp | None] = {}
        """How a file was when it was first read; None for what is no source of the job."""
        self._homes: dict[int, tuple[str, frozenset[str]]] = {}

    def meet(self, pid: int) -> None:
        """Note where a process stands and what it was started with, while it lives."""
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - no Path for a glance
            with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
                words = file.read(64 * 1024).split(b"\0")[1:_MOST_WORDS]
        except OSError:  # it has ended, or is not ours to look at
            return
        scripts = (os.path.join(folder, os.fsdecode(word)) for word in words if word[:1] != b"-")  # noqa: PTH118
        self._homes.pop(pid, None)
        self._homes[pid] = folder, frozenset(map(os.path.realpath, scripts))
        if len(self._homes) > _MOST_PROCESSES:
            del self._homes[next(iter(self._homes))]

    def read(
        self, samples: list[StackSample], *, with_libraries: bool = True
    ) -> Iterator[SourceLine]:
        """The lines in these stacks that were not reported yet.

        Of libraries the innermost ones alone where there are many, and none of imports, which run
        through hundreds of files.
        """
        wanted: dict[tuple[int, str], set[int]] = {}
        for sample in samples:
            is_import = not with_libraries and any(_IMPORTER in each for each in sample.frames)
            for depth, frame in enumerate(sample.frames, start=1):
                found = _FRAME.search(frame)
                place = (found["file"], int(found["line"])) if found else ("", 0)
                is_wanted = with_libraries or (depth == len(sample.frames) and not is_import)
                if not is_wanted and _LIBRARY.search(place[0]):
                    continue
                if place[1] and place not in self._reported and len(self._reported) < MOST_LINES:
                    self._reported.add(place)
                    wanted.setdefault((sample.pid, place[0]), set()).add(place[1])
        for (pid, file), lines in wanted.items():
            texts = self._read_file(file, pid)
            for line in sorted(lines):
                text = texts[line - 1].strip() if line <= len(texts) else b""
                if text:
                    shown = redact_code(text.decode("utf-8", "replace"))
                    yield SourceLine(file, line, shown[:MOST_TEXT])

    def _read_file(self, file: str, pid: int) -> list[bytes]:
        folder, scripts = self._homes.get(pid, ("", frozenset()))
        if (not folder and file[:1] != "/") or not _shares_mounts(pid):
            return []
        path = os.path.realpath(os.path.join(folder, file))  # noqa: PTH118
        is_source = file.endswith(".py") and path.endswith(".py")
        if not (is_source or path in scripts) or self._stamps.get(path, _UNREAD) is None:
            return []
        stamp, content = _read(path)
        if self._stamps.setdefault(path, stamp) != stamp:
            return []  # edited since: its lines are no longer those that run
        return content.splitlines()


def _shares_mounts(pid: int) -> bool:
    """Whether a path means the same file to a process as to us: not in another container."""
    try:
        its, ours = (os.readlink(f"/proc/{each}/ns/mnt") for each in (pid, "self"))  # noqa: PTH115
    except OSError:  # it has ended, as a job may whose stacks are read last
        return True
    return its == ours


def _read(path: str) -> tuple[_Stamp | None, bytes]:
    """A source file and how to recognise it again; None if it is none."""
    try:
        descriptor = open_below(*os.path.split(path))
    except OSError:
        return None, b""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_size > MOST_FILE_BYTES:
            return None, b""
        content = file.read(MOST_FILE_BYTES)
    if b"\0" in content:
        return None, b""
    return (status.st_ino, status.st_mtime_ns, status.st_size), content
