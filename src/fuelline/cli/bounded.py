"""Reading what others wrote, in a process that may not grow beyond reason.

A few kilobytes of Parquet, JSON or SQLite can ask for all the memory there is, and a damaged file
can make a library abort. So the commands that read runs and traces do it in a child: a fork before
anything heavy is loaded (2 ms), whose memory is looked at two hundred times a second (0.6 % of a
core). What it may take follows from how much there is to read; what else lies beside it, as anybody
could put there, does not count. If it takes more it is ended, and the user hears a sentence instead
of losing the machine.
"""

from __future__ import annotations

import os
import re
import signal
from itertools import islice
from typing import TYPE_CHECKING

from fuelline.cli.saying import flush_streams, say
from fuelline.schema.errors import FuellineError, InputError, RefusedError, UsageError
from fuelline.schema.files import remove_drafts
from fuelline.schema.run.run_folder import FIX_DIR, MANIFEST_FILE, PART_PREFIX, RUN_FILE, SPOOL_DIR

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MEMORY_VARIABLE = "FUELLINE_MEMORY_MB"
BASE_BYTES = 320 * 10**6
"""For one process, whatever it reads; a diagnosis takes 100 to 200 MB. On a crowded machine the
watchdog comes late, and a bomb gets 160 MB further (bench/hostile.py)."""
TIMES_DISK = 32
"""And so much more for each byte on the disk, as small tables are packed best."""
AMPLE_BYTES = 10**9
TIMES_LARGE = 12
"""From `AMPLE_BYTES` on, no more than so much for each: 64 ranks over an hour take nine times their
93 MB (bench/many_ranks.py), traces of 2 GB take 300 MB."""
_MOST_ENTRIES = 10_000
"""Looked at in a folder; somebody may have named the root of a disk."""
_READ_IN_RUNS = re.compile(
    rf"(?:{PART_PREFIX}[^/]*/)?(?:{RUN_FILE}|{MANIFEST_FILE}|[^/]+\.(?:parquet|journal)"
    rf"|{SPOOL_DIR}/[^/]+\.spool|{FIX_DIR}/[^/]+\.jsonl)"
)
"""Names in a run's folder that a reader opens."""
_LOOK_SECONDS = 0.005
_CHILDREN_EVERY = 20
_PR_SET_PDEATHSIG = 1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
_SI_KERNEL = 0x80
"""Where a signal comes from: here the terminal, which sends it to both of us."""


def read_apart(options: argparse.Namespace) -> int | None:
    """None in the process that is to go on with the command; its exit code in the other.

    Commands say by `reads` which paths they read and by `drafts` where they leave unfinished work.
    """
    if "reads" not in options:
        return None
    limit = _Limit(options)
    flush_streams()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _die_with(parent_pid)
        return None
    return _Watchdog(pid, limit, options).wait()


def _die_with(parent_pid: int) -> None:
    """End when the watchdog is killed: nobody would bound us any more."""
    import ctypes  # noqa: PLC0415 - a job that is started need not wait for it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


class _Limit:
    """What one process may take; looked up again before it is enforced, as a run may grow."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._set_bytes = _read_variable()
        self.disk_bytes = 0
        self.bytes = 0
        self.refresh()

    def refresh(self) -> None:
        """Look at the disk."""
        if self._set_bytes is not None:
            self.bytes = self._set_bytes
            return
        try:
            paths = self._options.reads(self._options)
            self.disk_bytes = _count_bytes(paths, reads_all="reads_all" in self._options)
        except (FuellineError, OSError):  # the command says what is wrong with the name
            self.disk_bytes = 0
        self.bytes = BASE_BYTES + _allow(self.disk_bytes)

    def is_kept(self, taken_bytes: list[int]) -> bool:
        """Whether all processes of the command together take no more than they may.

        Those that import side by side each need a base, and share what the disk allows.
        """
        each_bytes = BASE_BYTES if self._set_bytes is None else self._set_bytes
        together = self.bytes + each_bytes * (len(taken_bytes) - 1)
        return max(taken_bytes) <= self.bytes and sum(taken_bytes) <= together


def _allow(disk_bytes: int) -> int:
    return min(TIMES_DISK * disk_bytes, max(AMPLE_BYTES, TIMES_LARGE * disk_bytes))


def _read_variable() -> int | None:
    word = os.environ.get(MEMORY_VARIABLE)
    if not word:
        return None
    if not word.isdecimal() or not 1 <= len(word) <= 9:
        raise UsageError(
            f"{MEMORY_VARIABLE}={word} is not a number of megabytes. Nothing was read. Set it to "
            "4000, say, or leave it out."
        )
    return int(word) * 10**6


def _count_bytes(paths: Iterable[Path], *, reads_all: bool) -> int:
    """What there is to read; holes do not count, and links in folders are not followed.

    In a folder that is a run, or ought to be, only what a reader opens; with `reads_all` all files.
    """
    total = 0
    for path in paths:
        if path.is_file():
            total += path.stat().st_blocks * 512
        for found in islice(_walk(str(path), reads_all=reads_all), _MOST_ENTRIES):
            if reads_all or _READ_IN_RUNS.fullmatch(os.path.relpath(found, path)):
                total += _count_file(found)
    return total


def _walk(folder: str, *, reads_all: bool) -> Iterator[str]:
    """What is in a folder and below, other folders included; of a run only those it has."""
    for here, inner, names in os.walk(folder):
        if not reads_all:
            inner[:] = [name for name in inner if _RUN_FOLDER.match(name)]
        yield from (os.path.join(here, name) for name in (*inner, *names))  # noqa: PTH118


_RUN_FOLDER = re.compile(rf"{PART_PREFIX}|(?:{SPOOL_DIR}|{FIX_DIR})$")


def _count_file(path: str) -> int:
    try:
        return os.lstat(path).st_blocks * 512
    except OSError:
        return 0


class _Watchdog:
    """The parent of a process that reads."""

    def __init__(self, pid: int, limit: _Limit, options: argparse.Namespace) -> None:
        self._pid = pid
        self._limit = limit
        self._options = options
        self._helpers: list[int] = []
        self._looks = 0

    def wait(self) -> int:
        """Until it ends, one way or another."""
        waited = {signal.SIGCHLD, *_PASSED_ON}
        while True:
            found = signal.sigtimedwait(waited, _LOOK_SECONDS)
            if found is not None and found.si_signo in _PASSED_ON and found.si_code != _SI_KERNEL:
                os.kill(self._pid, found.si_signo)
            changed, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
            if changed and os.WIFSTOPPED(status):
                os.kill(os.getpid(), signal.SIGSTOP)
                os.kill(self._pid, signal.SIGCONT)  # we go on, and so shall it
            elif changed:
                return self._leave_like(os.waitstatus_to_exitcode(status))
            if self._takes_too_much():
                return self._end_it()

    def _takes_too_much(self) -> bool:
        if self._looks % _CHILDREN_EVERY == 0:
            self._helpers = _find_children(self._pid)
        self._looks += 1
        if self._limit.is_kept(self._measure()):
            return False
        self._limit.refresh()
        return not self._limit.is_kept(self._measure())

    def _measure(self) -> list[int]:
        return [_resident_bytes(pid) for pid in (self._pid, *self._helpers)]

    def _end_it(self) -> int:
        self._helpers = _find_children(self._pid)
        for pid in (self._pid, *self._helpers):
            _kill(pid)
        os.waitpid(self._pid, 0)
        self._clean_up()
        limit_mb, disk_mb = self._limit.bytes / 1e6, self._limit.disk_bytes / 1e6
        beside = f", with {disk_mb:.1f} MB on the disk" if disk_mb else ""
        say(
            f"reading {self._name()} took more than {limit_mb:.0f} MB of memory{beside}. It was "
            "stopped and nothing was changed: such data is damaged, or made to do harm. If you "
            f"trust it, `{MEMORY_VARIABLE}={4 * limit_mb:.0f} fuelline ...` with the same "
            "arguments allows more."
        )
        return InputError.exit_code

    def _leave_like(self, code: int) -> int:
        if code >= 0:
            return code
        self._clean_up()
        if -code in _CRASHES:
            say(
                f"reading {self._name()} crashed a library ({signal.Signals(-code).name}): the "
                "data is damaged. Nothing was changed. Copy the data again, or record again with "
                "`fuelline run`."
            )
            return InputError.exit_code
        if -code == signal.SIGKILL:
            say(
                f"reading {self._name()} was killed from outside, perhaps by the kernel because "
                "memory ran out. Nothing was changed. Try again on a machine with more memory."
            )
            return RefusedError.exit_code
        for number in (-code, *_PASSED_ON):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        os.kill(os.getpid(), -code)
        return 128 - code

    def _clean_up(self) -> None:
        for folder in self._options.drafts(self._options) if "drafts" in self._options else ():
            remove_drafts(folder, self._pid)

    def _name(self) -> str:
        try:
            paths = [str(path) for path in self._options.reads(self._options)]
        except (FuellineError, OSError):
            return "that"
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        return ", ".join(paths[:3]) + more


def _find_children(pid: int) -> list[int]:
    """Of all threads of a process."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a hundred times a second
        for thread in threads:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:  # a thread that has ended, or a kernel that does not tell
        return found
    return found


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - a hundred times a second
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
