"""Reading what others wrote, in processes that may not grow beyond reason.

A few kilobytes of Parquet, JSON or SQLite can ask for all the memory there is, and a damaged file
can make a library abort. So the commands that read runs and traces do it in a child: a fork before
anything heavy is loaded (2 ms), whose memory is looked at two hundred times a second (0.6 % of a
core), twenty times once it has kept still, as that of `watch` does, and later four times. How much
it may take is the user's word alone: nothing on the disk allows more, as anybody could have put it
there. What is read is read in pieces, so that long runs fit as well.

The kernel enforces a second limit on what one process asks for (RLIMIT_DATA): on a crowded machine
the watchdog comes late, and a bomb gets 160 MB further in that time (bench/hostile.py). Whoever
takes too much is ended, and the user hears a sentence instead of losing the machine.
"""

from __future__ import annotations

import os
import resource
import shlex
import signal
import sys
from typing import TYPE_CHECKING

from fuelline.cli.frugal import save_memory, use_few_threads
from fuelline.cli.saying import flush_streams, say
from fuelline.schema.errors import FuellineError, InputError, RefusedError, UsageError
from fuelline.schema.files import remove_drafts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

MEMORY_VARIABLE = "FUELLINE_MEMORY_MB"
MOST_BYTES = 500 * 10**6
"""For all processes of a command together, this one included: 64 ranks over an hour take 350 MB, a
day with its journal 360, traces of 2 GB 350 (bench/many_ranks.py, day.py, trace_import.py)."""
EACH_BYTES = 200 * 10**6
"""For each process beyond two that the user lets import in parallel."""
MARGIN_BYTES = 40 * 10**6
"""Below the limit a reader is ended: it goes on growing until that is done."""
_LIBRARIES_BYTES = 80 * 10**6
"""Of a process that are not its data: files that it has mapped, and this process."""
_LEAST_DATA_BYTES = 250 * 10**6
"""That the kernel lets one process ask for, so that it can load its libraries."""
NO_MEMORY = 70
"""How a reader ends that was refused memory; the watchdog says what that means."""
_LOOK_SECONDS = 0.005
_CALM_SECONDS = 0.05
"""Between looks at one that has kept still; meanwhile the kernel's limit bounds what it takes."""
_CALM_LOOKS = 400
_RARE_SECONDS = 0.25
_RARE_LOOKS = _CALM_LOOKS + 600
"""Of one that has kept still for half a minute more, as a reader that follows a job for hours."""
_STILL_BYTES = 1 << 20
_CHILDREN_EVERY = 20
_PR_SET_PDEATHSIG = 1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
_SI_KERNEL = 0x80
"""Where a signal comes from: here the terminal, which sends it to both of us."""


def read_apart(options: argparse.Namespace) -> int | None:
    """None in the process that is to go on with the command; its exit code in the other.

    Commands say by `reads` which paths they read (by `if_any` that there may be none, which saves
    the 20 ms that all this takes), by `drafts` where they leave unfinished work, by
    `processes` how many the user wants side by side, and by `takes` how to give the terminal back
    if they are killed while they have it.
    """
    if "reads" not in options or ("if_any" in options and not options.reads(options)):
        return None
    limit_bytes = _find_limit(options)
    give_back = options.takes() if "takes" in options else None
    flush_streams()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _die_with(parent_pid)
        save_memory()
        if "processes" not in options:  # those choose for themselves
            use_few_threads()
        _bound_data(limit_bytes)
        return None
    return _Watchdog(pid, limit_bytes, options, give_back).wait()


def _find_limit(options: argparse.Namespace) -> int:
    """What all processes together may take."""
    set_bytes = _read_variable()
    if set_bytes is not None:
        return set_bytes
    processes = options.processes(options) if "processes" in options else 1
    return MOST_BYTES + EACH_BYTES * max(0, processes - 2)


def _bound_data(limit_bytes: int) -> None:
    """Let the kernel refuse what this process asks for beyond its limit."""
    # An allocation that is refused ends the process; where in a library it was helps nobody.
    os.environ["RUST_BACKTRACE"] = "0"
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = max(_LEAST_DATA_BYTES, limit_bytes - _LIBRARIES_BYTES)
    if most == resource.RLIM_INFINITY or wanted < most:
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def _die_with(parent_pid: int) -> None:
    """End when the watchdog is killed: nobody would bound us any more."""
    import ctypes  # noqa: PLC0415 - a job that is started need not wait for it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def _read_variable() -> int | None:
    word = os.environ.get(MEMORY_VARIABLE)
    if not word:
        return None
    if not word.isdecimal() or not 1 <= len(word) <= 9:
        raise UsageError(
            f"{MEMORY_VARIABLE}={word} is not a number of megabytes. Nothing was read. Set it to "
            "4000, for example, or leave it out."
        )
    return int(word) * 10**6


class _Watchdog:
    """The parent of a process that reads."""

    def __init__(
        self,
        pid: int,
        limit_bytes: int,
        options: argparse.Namespace,
        give_back: Callable[[], None] | None,
    ) -> None:
        self._pid = pid
        self._limit_bytes = limit_bytes
        self._options = options
        self._give_back = give_back
        self._helpers: list[int] = []
        self._looks = 0
        self._taken_bytes = 0
        self._still = 0
        """Looks since it grew."""

    def wait(self) -> int:
        """Until it ends, one way or another."""
        waited = {signal.SIGCHLD, *_PASSED_ON}
        while True:
            rest_s = _LOOK_SECONDS if self._still < _CALM_LOOKS else _CALM_SECONDS
            rest_s = rest_s if self._still < _RARE_LOOKS else _RARE_SECONDS
            found = signal.sigtimedwait(waited, rest_s)
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
        if self._looks % _CHILDREN_EVERY == 0 or self._still >= _CALM_LOOKS:
            self._helpers = _find_descendants(self._pid)
        self._looks += 1
        pids = (os.getpid(), self._pid, *self._helpers)
        taken_bytes = sum(_resident_bytes(pid) for pid in pids)
        is_still = taken_bytes <= self._taken_bytes + _STILL_BYTES
        self._still = self._still + 1 if is_still else 0
        self._taken_bytes = self._taken_bytes if is_still else taken_bytes
        return taken_bytes > self._limit_bytes - min(MARGIN_BYTES, self._limit_bytes // 2)

    def _end_it(self) -> int:
        for pid in (self._pid, *_find_descendants(self._pid)):
            _kill(pid)
        os.waitpid(self._pid, 0)
        return self._tell_too_much()

    def _tell_too_much(self) -> int:
        self._clean_up()
        say(
            f"reading {self._name()} took more than {self._limit_bytes / 1e6:.0f} MB of memory. It "
            "was stopped and nothing was changed: the data is very large, damaged, or made to do "
            f"harm. If you trust it, `{self._allow_more()}` allows more."
        )
        return InputError.exit_code

    def _allow_more(self) -> str:
        """The same command with more memory."""
        words = shlex.join(["fuelline", *sys.argv[1:]])
        return f"{MEMORY_VARIABLE}={4 * self._limit_bytes / 1e6:.0f} {words}"

    def _leave_like(self, code: int) -> int:
        if code == NO_MEMORY:
            return self._tell_too_much()
        if code >= 0:
            return code
        self._clean_up()
        if -code in _CRASHES:
            say(
                f"reading {self._name()} crashed a library ({signal.Signals(-code).name}): the "
                f"data is damaged, or asks for more than {self._limit_bytes / 1e6:.0f} MB of "
                "memory. Nothing was changed. Copy the data again; if you trust it, "
                f"`{self._allow_more()}` allows more."
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
        if self._give_back is not None:
            self._give_back()
        for folder in self._options.drafts(self._options) if "drafts" in self._options else ():
            remove_drafts(folder, self._pid)

    def _name(self) -> str:
        try:
            paths = [str(path) for path in self._options.reads(self._options)]
        except (FuellineError, OSError):
            return "that"
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        return ", ".join(paths[:3]) + more


def _find_descendants(pid: int) -> list[int]:
    """The children of all threads of a process, and theirs."""
    found: list[int] = []
    for child in _find_children(pid):
        found += [child, *_find_descendants(child)]
    return found


def _find_children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a hundred times a second
        for thread in threads:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:  # a thread that has ended, or a kernel that does not say
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
