"""Stack samples of one process with their times: py-spy in pieces of some seconds, never blocking.

py-spy draws the time between two samples at random (an exponential distribution), so that it does
not fall into step with a training loop. Its format `chrometrace` says when a thread's stack has
changed, as pairs of B and E; what lies between two changes was seen at every sample in between.

    {"name":"thread (12825): MainThread","ph":"B","tid":1396,"ts":123102,"args":{...}}
    {"name":"main","ph":"B","tid":1396,"ts":123102,"args":{"filename":"/a.py","line":26}}
    {"name":"main","ph":"E","tid":1396,"ts":160007,"args":{"filename":"/a.py","line":27}}
"""

import json
import os
import re
import resource
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

from fuelline.record.attach.frames import Stack, StackFrame
from fuelline.record.samplers.procfs import find_text, list_numbers
from fuelline.schema.memory import make_memory

_THREAD = re.compile(r"^thread \((?P<tid>\w+)\)(?:: (?P<name>.*))?$", re.DOTALL)
_NICENESS = 5
_OVERDUE_S = 10.0
_MOST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StackStretch:
    """A thread was seen in one stack from one moment to the next."""

    start_ns: int
    end_ns: int
    stack: Stack


@dataclass(slots=True)
class StackPiece:
    """What py-spy saw of one process in some seconds."""

    pid: int
    start_ns: int
    end_ns: int
    threads: dict[int, list[StackStretch]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    """What Python calls the threads."""
    tids: dict[int, int] = field(default_factory=dict)
    """Native ids in the process's own container to ours."""
    problem: str = ""
    """What py-spy said instead."""


MOST_CORE_SHARE = 0.06
"""Of py-spy for all trainers together: a process with hundreds of Python threads costs 25 ms a
sample (200 of them), and gets fewer samples instead."""
LEAST_RATE = 5


class PieceRecorder:
    """One py-spy process at a time for one process of the job."""

    def __init__(self, binary: str, pid: int, rate: int, core_share: float) -> None:
        self._binary, self._pid, self.rate = binary, pid, rate
        self._core_share = core_share
        self._tids: dict[int, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._output_fd = self._errors_fd = -1
        self._start_ns = 0
        self._until_ns = 0

    @property
    def helper_pid(self) -> int | None:
        """Of the py-spy that runs now."""
        return None if self._process is None else self._process.pid

    def start(self, seconds: int) -> None:
        """Begin a piece; raises OSError if py-spy does not start."""
        self._output_fd, self._errors_fd = make_memory("pieces"), make_memory("errors")
        shape = ["--format", "chrometrace", "--threads", "--idle", "--full-filenames"]
        self._start_ns = time.monotonic_ns()
        self._until_ns = self._start_ns + int((seconds + _OVERDUE_S) * 1e9)
        self._process = subprocess.Popen(
            [self._binary, "record", "--nonblocking", "--pid", str(self._pid), "--rate",
             str(self.rate), "--duration", str(seconds), *shape,
             "--output", f"/proc/self/fd/{self._output_fd}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors_fd,
            pass_fds=(self._output_fd,),
        )  # fmt: skip
        try:
            os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICENESS)
        except OSError:  # it has ended already
            return

    def take(self, *, at_once: bool = False) -> StackPiece | None:
        """The piece, once it is done; `at_once` ends it now, and it has what was seen so far."""
        process, spent_ns = self._process, children_cpu_ns()
        if process is None:
            return None
        # A thread that has ended since is known by the numbers of before.
        self._tids |= find_tids(self._pid)
        if at_once and process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.poll() is None:
            if time.monotonic_ns() > self._until_ns:
                process.kill()
            return None
        self._process = None
        self._slow_down(children_cpu_ns() - spent_ns)
        output, errors = _drain(self._output_fd), _drain(self._errors_fd)
        now_ns = time.monotonic_ns()
        piece = StackPiece(self._pid, self._start_ns, now_ns, tids=self._tids)
        try:
            read_piece(json.loads(output) if output else [], piece)
        except (ValueError, KeyError, TypeError) as error:
            piece.problem = f"its output cannot be read ({error})"
        if not piece.threads and not piece.problem:
            piece.problem = errors.strip().replace("\n", " ")[:300] or "it saw no Python thread"
        return piece

    def _slow_down(self, cpu_ns: int) -> None:
        """Take fewer samples if those of the last piece cost more than their share of a core."""
        used = cpu_ns / max(1, time.monotonic_ns() - self._start_ns)
        if used > self._core_share:
            self.rate = max(LEAST_RATE, int(self.rate * self._core_share / used))


def find_tids(pid: int) -> dict[int, int]:
    """From the numbers that threads have in their own container to ours; empty if they are alike.

    `NSpid:  4711  12` in a thread's status: the outermost number first.
    """
    found: dict[int, int] = {}
    try:
        tids = list_numbers(f"/proc/{pid}/task")
    except OSError:
        return found
    for tid in tids:
        text = find_text(f"/proc/{pid}/task/{tid}/status") or ""
        line = next((each for each in text.splitlines() if each.startswith("NSpid:")), "")
        numbers = line.split()[1:]
        if len(numbers) < 2:
            return {}
        found[int(numbers[-1])] = tid
    return found


def _drain(fd: int) -> str:
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        return file.read(_MOST_BYTES).decode("utf-8", "replace")


def read_piece(events: list[dict[str, Any]], piece: StackPiece) -> None:
    """Turn pairs of B and E into stretches, by native thread id; a thread without one is left out.

    Python 3.10 and older keep no native ids: there the main thread alone is known, by its name.
    """
    stacks: dict[int, list[StackFrame]] = {}
    since: dict[int, int] = {}
    tids: dict[int, int] = {}
    for event in events:
        key, at_ns = event["tid"], piece.start_ns + event["ts"] * 1000
        found = _THREAD.match(event["name"]) if not event["args"].get("filename") else None
        if found is not None:
            tid = _native(found, piece)
            if event["ph"] == "B" and tid:
                tids[key] = tid
                piece.names[tid] = found["name"] or ""
        stack = stacks.setdefault(key, [])
        if at_ns > since.get(key, at_ns) and stack and key in tids:
            stretch = StackStretch(since[key], at_ns, tuple(stack))
            piece.threads.setdefault(tids[key], []).append(stretch)
        since[key] = at_ns
        if found is not None:
            continue
        if event["ph"] == "B":
            args = event["args"]
            stack.append(
                StackFrame(event["name"], args.get("filename") or "", args.get("line") or 0)
            )
        elif stack:
            stack.pop()
    ends = [each[-1].end_ns for each in piece.threads.values()]
    starts = [each[0].start_ns for each in piece.threads.values()]
    if ends:
        piece.start_ns, piece.end_ns = min(starts), max(ends)


def _native(found: re.Match[str], piece: StackPiece) -> int:
    if found["tid"].isdigit():
        return piece.tids.get(int(found["tid"]), 0 if piece.tids else int(found["tid"]))
    return piece.pid if found["name"] == "MainThread" else 0


def children_cpu_ns() -> int:
    """CPU of all helpers that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((usage.ru_utime + usage.ru_stime) * 1e9)
