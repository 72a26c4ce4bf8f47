"""The report at a job's end, in its own process: it may be killed, and the exit code stays.

The launcher starts it beside the job, so that it has loaded everything by the time the job ends; it
then waits for a line on its standard input. Where memory runs out the kernel ends it first, before
the job and before the launcher; a new one is tried once when the job has ended. It is a fresh
interpreter and no fork of the launcher: that costs 20 ms beside the job, but the launcher's small
heap is not copied page by page as both go on, no descriptor and no lock of the launcher is held by
a second process, and a list of processes says what it is.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.saying import flush_streams, open_streams, say
from fuelline.record.headroom import MemoryRoom
from fuelline.record.launch import PASSED_ON, end_process, find_python, own_python, step_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.record.launch import Mask

LONGEST_S = 600
"""A report takes seconds; nobody's job should hang on one that hangs."""
REPORT_BYTES = 256 << 20
"""Where the kernel ends a whole group at once a report is begun only if as much can be taken and
the reserve of record/headroom.py stays free: it takes 100 to 200 MB (cli/bounded.py)."""
_LOOK_S = 0.005
"""How often a report is looked at there, as in cli/bounded.py."""
_INTERRUPTED = 128 + signal.SIGINT
_TOO_LONG = 128 + signal.SIGALRM
_NO_MEMORY = 70
_NO_ROOM = 71
_GIVEN_UP = {
    _INTERRUPTED: ("it was interrupted", "shows it"),
    _TOO_LONG: (f"it took over {LONGEST_S} s", "shows it"),
    _NO_ROOM: (
        "too little memory is left in a control group that is killed as a whole (memory.oom.group)",
        "with more memory shows it",
    ),
}
"""What is not tried again."""


class Reporter:
    """The launcher's side: starts the process, lets it report, and outlives it."""

    def __init__(
        self,
        run_dir: Path,
        name: str,
        mask: Mask,
        *,
        price: float | None,
        part_of: Path | None,
        page: Path | None = None,
        is_quiet: bool = False,
        store: str = "",
        store_wait_s: float = 0.0,
        trackers: Sequence[str] = (),
    ) -> None:
        """`name` is the word by which commands find the run; `mask` is what it starts with.

        `page`: the file that is to show the report as well, or alone if it `is_quiet`. `store`:
        the fleet's, which gets a row of the run and may take so long over it. `trackers`: tools
        that are to have it, too.
        """
        self._name = name
        self._mask = {*mask, *PASSED_ON}  # what is sent to the whole group is for the job
        self._words = [str(run_dir.absolute()), name, "" if price is None else str(price)]
        self._words += [str(part_of or ""), str(page.absolute() if page else "")]
        self._words += ["quiet" if is_quiet else "", store, str(store_wait_s), *trackers]
        self._child: subprocess.Popen[bytes] | None = None
        self._room = MemoryRoom.find()

    def start(self) -> None:
        """Begin to load what a report needs."""
        try:
            self._child = subprocess.Popen(
                own_python("fuelline.cli.record.reporting", self._words),
                stdin=subprocess.PIPE,
                preexec_fn=lambda: step_back(self._mask),  # noqa: PLW1509 - no threads here
            )
        except OSError:
            self._child = None  # tried again at the end

    def finish(self) -> None:
        """Let it report; called with signals held back. Never raises, whatever becomes of it."""
        if self._room is not None and self._room.is_short(REPORT_BYTES):
            self.stop()
            self._say(*_GIVEN_UP[_NO_ROOM])
            return
        ended = "did not start"
        for _ in range(2):
            if self._child is not None and self._child.poll() is not None:
                self.stop()  # killed while it waited
            if self._child is None:
                self.start()
            if self._child is None:
                continue
            code = self._await(self._child)
            if code == 0:
                return
            if code in _GIVEN_UP:
                self._say(*_GIVEN_UP[code])
                return
            ended = f"was killed by signal {-code}" if code < 0 else f"failed with code {code}"
            self.stop()
        self._say(
            f"its process {ended}, most likely because memory ran out",
            "on a machine with more memory shows it",
        )

    def stop(self) -> None:
        """There is nothing to report, or nobody to do it."""
        child, self._child = self._child, None
        if child is not None:
            end_process(child)
            if child.stdin is not None:
                child.stdin.close()

    def _say(self, what: str, where: str) -> None:
        say(
            f"no report: {what}. The job had ended by then, and its recording is kept. "
            f"`fuelline diagnose {self._name}` {where}."
        )

    def _await(self, child: subprocess.Popen[bytes]) -> int:
        """Its exit code; a signal that comes for us ends it, and so do time and want of memory."""
        if child.stdin is not None:
            try:
                os.write(child.stdin.fileno(), b"report\n")
            except OSError:
                pass  # it is gone, as its exit code shows
            child.stdin.close()
        until_s = time.monotonic() + LONGEST_S
        while (code := child.poll()) is None:
            left_s = max(until_s - time.monotonic(), 0)
            look_s = left_s if self._room is None else min(left_s, _LOOK_S)
            info = signal.sigtimedwait({*PASSED_ON, signal.SIGCHLD}, look_s)
            given_up = self._find_reason(info, left_s)
            if given_up:
                self.stop()
                return given_up
        return _INTERRUPTED if code == -signal.SIGINT else code

    def _find_reason(self, info: signal.struct_siginfo | None, left_s: float) -> int:
        """Why a report that still runs is to be ended, as an exit code; 0 if it is not."""
        if info is not None and info.si_signo != signal.SIGCHLD:
            return _INTERRUPTED
        if self._room is not None and self._room.is_short():
            return _NO_ROOM
        return _TOO_LONG if info is None and left_s <= 0 else 0


def main(words: list[str]) -> int:
    """The process itself; its exit code is 0 if whatever there was to say has been said."""
    run_dir, name, price, part_of, page, quiet, store, store_wait_s, *trackers = words
    open_streams()
    _silence_libraries()
    _load_pipeline()
    if not sys.stdin.readline():
        return 0  # the launcher is gone, and nobody waits for a report
    while signal.sigtimedwait(PASSED_ON, 0) is not None:
        pass  # what was sent to the group while the job ran was for the job
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    if part_of:
        code = close_part(Path(run_dir))
    else:
        code = report(
            Path(run_dir),
            name,
            float(price) if price else None,
            page=Path(page) if page else None,
            is_quiet=bool(quiet),
        )
        if store and code == 0:
            leave_row(Path(run_dir), name, store, float(store_wait_s))
        for tool in trackers:
            attach_run(tool, Path(run_dir), name, float(price) if price else None)
    flush_streams()
    return code


def _silence_libraries() -> None:
    """Where standard error leads only we write: compiled libraries write to descriptor 2.

    Under a limit of address space jemalloc writes a line there thousands of times, and a panic its
    backtrace. Descriptor 0 leads there, too, for those who ask it how wide the terminal is.
    """
    try:
        own = os.dup(2)
    except OSError:
        return  # it is closed
    go = os.dup(0)
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 2)
    os.dup2(own, 0)
    sys.stderr = os.fdopen(own, "w", encoding=sys.stderr.encoding, errors="backslashreplace")
    sys.stdin = os.fdopen(go, encoding="ascii")


def _load_pipeline() -> None:
    """Half a second that the user need not wait for at the end; what fails fails again then."""
    try:
        import fuelline.fix.tune.outcomes  # noqa: PLC0415 - as the text says
        import fuelline.pipeline.diagnosed  # noqa: PLC0415
        import fuelline.pipeline.recorded  # noqa: PLC0415
        import fuelline.report  # noqa: F401, PLC0415
    except BaseException:  # noqa: BLE001 - a build of polars for another processor, say
        return


def report(
    run_dir: Path,
    name: str,
    price: float | None,
    *,
    page: Path | None = None,
    is_quiet: bool = False,
) -> int:
    """Show the diagnosis, or why there is none, a panic of polars too."""
    try:
        from fuelline import pipeline  # noqa: PLC0415 - loaded while the job ran

        pipeline.show_report(
            run_dir,
            name=name,
            price=price,
            stream=None if is_quiet else sys.stderr,
            python=find_python(),
            page=page,
        )
        if page is not None:
            say(f"page written to {page}")
    except KeyboardInterrupt:
        return _INTERRUPTED
    except MemoryError:
        return _NO_MEMORY
    except BaseException as error:  # noqa: BLE001 - as the text says
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            return _NO_MEMORY  # which polars says in strange words: name 'plr' is not defined
        say(
            f"no report: {error or type(error).__name__}. The job had ended by then, and its "
            f"recording is kept. `fuelline --debug diagnose {name}` shows more."
        )
    return 0


def leave_row(run_dir: Path, name: str, store: str, wait_s: float) -> None:
    """Send the fleet's store what this run came to; a store that fails is said, and no more."""
    try:
        from fuelline.fleet.sending import send_row  # noqa: PLC0415 - most runs send none

        reason = send_row(run_dir, store, os.environ.get("SLURM_JOB_ID", ""), wait_s)
    except (KeyboardInterrupt, MemoryError) as error:
        reason = "it was interrupted" if isinstance(error, KeyboardInterrupt) else "memory ran out"
    except BaseException as error:  # noqa: BLE001 - as in `report`
        reason = str(error) or type(error).__name__
    if reason is not None:
        say(
            f"{store} has no row of this run yet: {reason}. The recording is kept; the next "
            f"`fuelline run --store` sends it, or `fuelline fleet {store} --add {name}` now."
        )


def attach_run(tool: str, run_dir: Path, name: str, price: float | None) -> None:
    """To the run that the job has in a tool; whatever goes wrong there is said, and no more."""
    try:
        from fuelline.tools import attach  # noqa: PLC0415 - few ask for it

        say(f"attached: {attach(tool, None, run_dir, name=name, price=price)}")
    except KeyboardInterrupt:
        say(f"not attached to {tool}: it was interrupted.")
    except BaseException as error:  # noqa: BLE001 - another project's code, at the job's end
        say(f"not attached to {tool}: {error or type(error).__name__}")


def close_part(part: Path) -> int:
    """Compact this host's part here, so that the reader of all parts need not."""
    try:
        from fuelline import pipeline  # noqa: PLC0415 - as in `report`

        pipeline.compact_run(part)
    except (KeyboardInterrupt, MemoryError):
        return 0  # it stays as it was recorded, which serves as well
    except BaseException as error:  # noqa: BLE001 - as in `report`
        say(f"{part} stays as it was recorded: {error}")
    return 0
