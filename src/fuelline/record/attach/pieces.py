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
    problem: str = ""
    """What py-spy said instead."""


class PieceRecorder:
    """One py-spy process at a time for one process of the job."""

    def __init__(self, binary: str, pid: int, rate: int) -> None:
        self._binary, self._pid, self._rate = binary, pid, rate
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
             str(self._rate), "--duration", str(seconds), *shape,
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
        process = self._process
        if process is None:
            return None
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
        output, errors = _drain(self._output_fd), _drain(self._errors_fd)
        now_ns = time.monotonic_ns()
        piece = StackPiece(self._pid, self._start_ns, now_ns)
        try:
            read_piece(json.loads(output) if output else [], piece)
        except (ValueError, KeyError, TypeError) as error:
            piece.problem = f"its output cannot be read ({error})"
        if not piece.threads and not piece.problem:
            piece.problem = errors.strip().replace("\n", " ")[:300] or "it saw no Python thread"
        return piece


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
            tid = _native(found, piece.pid)
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


def _native(found: re.Match[str], pid: int) -> int:
    if found["tid"].isdigit():
        return int(found["tid"])
    return pid if found["name"] == "MainThread" else 0


def children_cpu_ns() -> int:
    """CPU of all helpers that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((usage.ru_utime + usage.ru_stime) * 1e9)
