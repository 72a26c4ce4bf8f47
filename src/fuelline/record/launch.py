"""Starts the job as a child, unchanged but for its environment, and the observer beside it.

The child keeps our terminal, process group, standard streams and working directory. A signal that
the terminal sends reaches it directly; one that was sent to us alone is passed on. Whatever fails
here costs the recording, never the job.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import fuelline
from fuelline import __version__
from fuelline.record.hooks import SITE_DIR
from fuelline.record.samplers.procfs import find_text
from fuelline.schema.errors import InputError
from fuelline.schema.files import make_folder, open_own, write_whole
from fuelline.schema.names import encodable
from fuelline.schema.recording import RUN_FILE, SPOOL_DIR, Blindspot, RunFacts
from fuelline.schema.redaction import redact_command
from fuelline.schema.wire import (
    BOOT_ID_VARIABLE,
    OBSERVER_PID_VARIABLE,
    RUN_DIR_VARIABLE,
    ZOOM_VARIABLE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_FROM_KERNEL = 0x80
"""si_code of a signal that the terminal sent to the whole foreground group (SI_KERNEL)."""
_OBSERVER_GRACE_S = 3.0
"""How long the observer may take to write its last samples; it needs milliseconds."""
_OBSERVE = (
    "import sys; sys.path[:] = [each for each in sys.path if each]; "
    f"sys.path.append({str(Path(fuelline.__file__).parents[1])!r}); "
    "from fuelline.record.observer import main; sys.exit(main(sys.argv[1:]))"
)
"""Not `-m`, which looks for modules in the working directory first: others may write there."""
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Outcome:
    """How the job ended, and what kept it from being recorded, if anything did."""

    returncode: int
    """As `subprocess` gives it: negative is the signal that ended the job."""
    problem: str | None = None


def launch(
    command: list[str],
    run_dir: Path,
    zoom: str | None = None,
    *,
    more: Mapping[str, str] | None = None,
    stdout: int | None = None,
    meanwhile: Callable[[], None] | None = None,
    keeps_command: bool = True,
) -> Outcome:
    """Run the job to its end and record it into `run_dir`.

    `zoom` is steps to profile; `more` are variables of its environment beside our own; `stdout` is
    a descriptor for its output, if not ours; `meanwhile` is called once while the job starts, and
    signals that are to be passed on wait for it; without `keeps_command` the recording does not say
    what was run.
    """
    facts = _describe_run(redact_command(command) if keeps_command else [], run_dir)
    problem = _prepare(run_dir, facts)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    try:
        environment = {**os.environ, **(more or {})}
        if problem is None:
            environment = {**_job_environment(run_dir, zoom, more or {})}
        job = _start_job(command, environment, mask, stdout)
        observer = _start_observer(run_dir, job.pid, mask) if problem is None else None
        _use_the_time(meanwhile)
        returncode = _wait(job)
        observer_code = _stop(observer)
    except InputError:
        if problem is None:  # made a moment ago: a run of nothing must not become the last run
            shutil.rmtree(run_dir, ignore_errors=True)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if problem is None:
        problem = _finish(run_dir, facts, returncode, observer_code)
    return Outcome(returncode, problem)


def _describe_run(command: list[str], run_dir: Path) -> RunFacts:
    return RunFacts(
        run_id=encodable(run_dir.name),
        command=[encodable(word) for word in command],
        host=socket.gethostname(),
        started_wall_ns=time.time_ns(),
        started_ns=time.monotonic_ns(),
        fuelline_version=__version__,
        python_version=platform.python_version(),
        kernel=platform.release(),
        launcher_pid=os.getpid(),
    )


def _prepare(run_dir: Path, facts: RunFacts) -> str | None:
    """Make the run's folder; returns what went wrong, if anything."""
    try:
        make_folder(run_dir / SPOOL_DIR)
        with write_whole(run_dir / RUN_FILE) as file:
            file.write(msgspec.json.encode(facts))
    except OSError as error:
        return f"{run_dir} cannot be written ({error.strerror})"
    return None


def _job_environment(run_dir: Path, zoom: str | None, more: Mapping[str, str]) -> Mapping[str, str]:
    """Ours plus the hooks' folder. The observer is our child, so our pid covers it and py-spy."""
    path = more.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
    quiet = {"KINETO_LOG_LEVEL": "99"}  # the profiler would write to the job's standard error
    return {
        **({ZOOM_VARIABLE: zoom, **quiet} if zoom else {}),
        **os.environ,
        **more,
        "PYTHONPATH": f"{SITE_DIR}{os.pathsep}{path}" if path else str(SITE_DIR),
        RUN_DIR_VARIABLE: str(run_dir.absolute()),
        OBSERVER_PID_VARIABLE: str(os.getpid()),
        BOOT_ID_VARIABLE: (find_text(_BOOT_ID) or "").strip(),
    }


def _start_job(
    command: list[str],
    environment: Mapping[str, str],
    mask: set[int | signal.Signals],
    stdout: int | None,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdout=stdout,
            close_fds=False,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),  # noqa: PLW1509 - no threads here
        )
    except OSError as error:
        raise InputError(
            f"{command[0]} could not be started ({error.strerror}). Nothing ran. "
            "Check the command; `fuelline run --help` shows the forms that work."
        ) from None


def _start_observer(
    run_dir: Path, job_pid: int, mask: set[int | signal.Signals]
) -> subprocess.Popen[bytes] | None:
    # What is sent to the whole group is for the job; the observer must not die of it as it starts.
    deaf = {*mask, *_PASSED_ON} - {signal.SIGTERM}
    command = [sys.executable, "-c", _OBSERVE]
    command += ["--run-dir", str(run_dir.absolute()), "--root-pid", str(job_pid)]
    try:
        with os.fdopen(open_own(run_dir / "observer.log", os.O_WRONLY), "wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, deaf),  # noqa: PLW1509 - no threads here
            )
    except OSError:
        return None  # reported by `_finish`, which finds no exit code


def _use_the_time(meanwhile: Callable[[], None] | None) -> None:
    """Do what need not wait for the job's end; it comes again if it fails, and is told then.

    Whatever it raises, a panic in a compiled library too, would leave the job without a parent and
    its caller without an exit code.
    """
    if meanwhile is None:
        return
    try:
        meanwhile()
    except BaseException:  # noqa: BLE001 - as the text says
        return


def _wait(job: subprocess.Popen[bytes]) -> int:
    """Wait for the job, passing on signals that were meant for it but sent to us alone."""
    while (returncode := job.poll()) is None:
        info = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
        if info.si_signo != signal.SIGCHLD and info.si_code != _FROM_KERNEL:
            job.send_signal(info.si_signo)
    while signal.sigtimedwait(_PASSED_ON, 0) is not None:
        pass  # meant for the job, which had it as well and has ended
    return returncode


def _stop(observer: subprocess.Popen[bytes] | None) -> int | None:
    """Ask the observer to write its last samples and leave."""
    if observer is None:
        return None
    if observer.poll() is None:
        observer.terminate()
        try:
            observer.wait(_OBSERVER_GRACE_S)
        except subprocess.TimeoutExpired:
            return _kill(observer)
        if observer.returncode == -signal.SIGTERM:
            return 0  # the job was over before the observer could do more than start
    return observer.returncode


def _kill(observer: subprocess.Popen[bytes]) -> int:
    """End it; not even that reaches a process that hangs in a driver, and nobody waits for one."""
    observer.kill()
    try:
        return observer.wait(_OBSERVER_GRACE_S)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


def _finish(
    run_dir: Path, facts: RunFacts, returncode: int, observer_code: int | None
) -> str | None:
    """Write down how it ended; returns what went wrong with the recording, if anything."""
    blindspots = list(facts.blindspots)
    if observer_code != 0:
        how = "did not start" if observer_code is None else f"ended with code {observer_code}"
        blindspots.append(
            Blindspot(
                what="everything outside the job after that moment",
                why=f"the observer {how} (see observer.log in the run's folder)",
                forbids="conclusions from thread states, host and cgroup counters over the "
                "whole run",
            )
        )
    ended = msgspec.structs.replace(
        facts, ended_ns=time.monotonic_ns(), exit_code=returncode, blindspots=blindspots
    )
    try:
        with write_whole(run_dir / RUN_FILE) as file:
            file.write(msgspec.json.encode(ended))
    except OSError as error:
        return f"{run_dir} could not be completed ({error.strerror})"
    return None
