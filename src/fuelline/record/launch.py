"""Starts the job as a child, unchanged but for its environment, and the observer beside it.

The child keeps our terminal, process group, standard streams and working directory. A signal that
the terminal sends reaches it directly; one that was sent to us alone is passed on. Whatever fails
here costs the recording, never the job.

This process holds the job's exit code, so it must outlive whatever memory runs short of: it loads
the standard library only, 15 MB resident and 9 MB of its own, and what is heavy runs in processes
that the kernel ends first.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import fuelline
from fuelline.record.headroom import Extent, ends_all_together, find_extent
from fuelline.record.hooks import SITE_DIR
from fuelline.record.staging import bring_home_apart, stage
from fuelline.schema.errors import InputError
from fuelline.schema.files import make_folder, open_own, write_whole
from fuelline.schema.names import encodable
from fuelline.schema.redaction import redact_command
from fuelline.schema.run.run_folder import RUN_FILE, SPOOL_DIR
from fuelline.schema.wire import (
    BOOT_ID_VARIABLE,
    OBSERVER_PID_VARIABLE,
    RUN_DIR_VARIABLE,
    ZOOM_VARIABLE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import NoReturn

Mask = set[int | signal.Signals]
"""Signals that are blocked."""
PASSED_ON = (
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
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class JobOutcome(NamedTuple):
    """How the job ended, and what is wrong with its recording, if anything is."""

    returncode: int
    """As `subprocess` gives it: negative is the signal that ended the job."""
    problem: str | None = None
    """Why nothing was recorded."""
    lacking: str | None = None
    """Why what was recorded lacks its end."""
    left_in: tuple[Path, str] | None = None
    """Where the recording still is, if it could not be brought home, and why."""


def hold_signals() -> Mask:
    """Block what is to be passed on to the job; returns what was blocked before."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})


def launch(
    command: list[str],
    run_dir: Path,
    zoom: str | None = None,
    *,
    more: Mapping[str, str] | None = None,
    stdout: int | None = None,
    extent: Extent | None = None,
    mask: Mask | None = None,
    meanwhile: Callable[[], None] | None = None,
    shown: list[str] | None = None,
    say: Callable[[str], None] | None = None,
    stages: bool = True,
) -> JobOutcome:
    """Run the job to its end and record it into `run_dir`.

    `zoom` is steps to profile; `more` are variables of its environment beside our own; `stdout` is
    a descriptor for its output, if not ours; `extent` is how much to record, found here if it is
    not given; `mask` are the signals that the job starts with blocked, if not those that are
    blocked here; `meanwhile` is called once while the job starts, if it is recorded, and signals
    that are to be passed on wait for it; `shown` is what the recording says was run, if not the
    command without its secrets; `say` is called before the start if `run_dir` cannot be written;
    without `stages` a folder on a network's disk is written to while the job runs.
    """
    extent = extent or find_extent()
    facts = describe_run(command, shown, run_dir, extent)
    folder = stage(run_dir) if stages and extent.kind != "nothing" else None
    problem = extent.why if extent.kind == "nothing" else prepare_folder(run_dir, folder, facts)
    if problem is not None and extent.kind != "nothing" and say is not None:
        say(problem)
    folder = folder or run_dir
    blocked = hold_signals()
    mask = blocked if mask is None else mask
    try:
        environment = _environment(folder, zoom, more or {}, is_recorded=problem is None)
        job = _start_job(command, environment, mask, stdout)
        is_watched = problem is None and extent.kind == "whole"
        observer = _start_observer(folder, job.pid, mask) if is_watched else None
        if meanwhile is not None and problem is None:
            meanwhile()
        returncode = _wait(job)
        observer_code = stop_observer(observer)
        if problem is not None:
            return JobOutcome(returncode, problem)
        if is_watched and observer_code != 0:
            facts["blindspots"].append(explain_observer(observer_code))
        lacking = finish_facts(folder, facts, returncode)
        why = None
        if folder != run_dir:
            why = bring_home_apart(folder, run_dir, RUN_FILE, PASSED_ON)
        if not os.path.isdir(run_dir):  # noqa: PTH112 - `is_dir` may raise
            return JobOutcome(returncode, f"{run_dir} was removed while the job ran")
        return JobOutcome(
            returncode, lacking=lacking, left_in=None if why is None else (folder, why)
        )
    except InputError:
        if problem is None:  # made a moment ago: a run of nothing must not become the last run
            shutil.rmtree(run_dir, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def become(
    command: list[str],
    run_dir: Path,
    zoom: str | None,
    *,
    extent: Extent,
    say: Callable[[str | None], None],
    shown: list[str] | None = None,
) -> NoReturn:
    """Let the job take our place: where limits are tight it gets all that they leave.

    Its hooks still record it, if there is anything to record. `say` is called
    before, with the reason if the run's folder could not be made.
    """
    problem = None
    if extent.kind != "nothing":
        problem = prepare_folder(run_dir, None, describe_run(command, shown, run_dir, extent))
    is_recorded = problem is None and extent.kind != "nothing"
    say(problem)
    environment = _environment(run_dir, zoom, {}, is_recorded=is_recorded)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        if is_recorded:
            shutil.rmtree(run_dir, ignore_errors=True)
        raise _not_started(command, error) from None


def describe_run(
    command: list[str], shown: list[str] | None, run_dir: Path, extent: Extent
) -> dict[str, Any]:
    """`schema.run.recording.RunFacts` in plain words: msgspec would make us a third larger.

    A test holds the two together.
    """
    host = os.uname()
    words = redact_command(command) if shown is None else shown
    inside = {
        "what": "everything outside the job's own processes",
        "why": f"{extent.why}, and the observer would have taken some",
        "forbids": "conclusions from thread states, stacks, host and cgroup counters",
    }
    return {
        "format": "fuelline-recording",
        "version": 1,
        "run_id": encodable(run_dir.name),
        "command": [encodable(word) for word in words],
        "host": host.nodename,
        "started_wall_ns": time.time_ns(),
        "started_ns": time.monotonic_ns(),
        "fuelline_version": fuelline.__version__,
        "python_version": sys.version.split()[0],
        "kernel": host.release,
        "launcher_pid": os.getpid(),
        "blindspots": [inside] if extent.kind == "inside" else [],
    }


def prepare_folder(run_dir: Path, staged: Path | None, facts: dict[str, Any]) -> str | None:
    """Make the run's folder, and the one that stands in for it; what went wrong, if anything."""
    try:
        make_folder(run_dir / SPOOL_DIR)
        if staged is not None:
            write_facts(run_dir, {**facts, "staged_in": str(staged)})
            make_folder(staged / SPOOL_DIR)
        write_facts(staged or run_dir, facts)
    except OSError as error:
        if staged is not None:
            shutil.rmtree(staged, ignore_errors=True)
        return f"{run_dir} cannot be written ({error.strerror})"
    return None


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Put a run's facts in place of those that are there."""
    with write_whole(folder / RUN_FILE) as file:
        file.write(json.dumps(facts).encode())


def _environment(
    run_dir: Path, zoom: str | None, more: Mapping[str, str], *, is_recorded: bool
) -> dict[str, str]:
    """Ours plus the hooks' folder. The observer is our child, so our pid covers it and py-spy."""
    if not is_recorded:
        return {**os.environ, **more}
    path = more.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
    quiet = {"KINETO_LOG_LEVEL": "99"}  # the profiler would write to the job's standard error
    return {
        **({ZOOM_VARIABLE: zoom, **quiet} if zoom else {}),
        **os.environ,
        **more,
        "PYTHONPATH": f"{SITE_DIR}{os.pathsep}{path}" if path else str(SITE_DIR),
        RUN_DIR_VARIABLE: str(run_dir.absolute()),
        OBSERVER_PID_VARIABLE: str(os.getpid()),
        BOOT_ID_VARIABLE: _boot_id(),
    }


def _boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:  # noqa: PTH123 - one line
            return file.read().strip()
    except OSError:
        return ""


def _start_job(
    command: list[str],
    environment: Mapping[str, str],
    mask: Mask,
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
        raise _not_started(command, error) from None


def _not_started(command: list[str], error: OSError) -> InputError:
    return InputError(
        f"{command[0]} could not be started ({error.strerror}). Nothing ran. "
        "Check the command; `fuelline run --help` shows the forms that work."
    )


def find_python() -> str:
    """What scripts are started with: the python of the user's active environment, else our own."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        candidate = os.path.join(os.environ.get(variable, "/nonexistent"), "bin", "python")  # noqa: PTH118
        if os.path.exists(candidate):  # noqa: PTH110 - `Path.exists` may raise
            return candidate
    return sys.executable


def own_python(module: str, words: list[str]) -> list[str]:
    """A command that calls `main` of one of our modules with these words.

    It looks for modules where we do. `python -m` would look in the current folder first, and a
    job's folder may well hold a `queue.py`. Warnings in it are nothing to the job's user.
    """
    start = "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); "
    start += f"from {module} import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-W", "ignore", "-c", start, _find_path(), *words]


def _find_path() -> str:
    """Where we look for modules, but for the working directory: others may write there.

    `python -m fuelline` looks there first, and so does an empty word in PYTHONPATH.
    """
    ours = os.path.dirname(os.path.dirname(os.path.realpath(fuelline.__file__)))  # noqa: PTH120
    barred = {os.path.realpath(".")} - {ours}
    return "\n".join(each for each in sys.path if each and os.path.realpath(each) not in barred)


def step_back(mask: Mask) -> None:
    """In a new process of ours: block these signals, and let the kernel end us before the job."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    go_first("self")


def go_first(process: int | str) -> None:
    """Let the kernel end a process before the job, where that does not end the job with it.

    Anybody may raise their `oom_score_adj` (proc(5)); 1000 goes first whatever the others are.
    """
    if ends_all_together():
        return
    try:
        with open(f"/proc/{process}/oom_score_adj", "wb", buffering=0) as file:  # noqa: PTH123
            file.write(b"1000")
    except OSError:
        return  # no /proc, or one that may not be written


def _start_observer(run_dir: Path, job_pid: int, mask: Mask) -> subprocess.Popen[bytes] | None:
    # What is sent to the whole group is for the job; the observer must not die of it as it starts.
    deaf = {*mask, *PASSED_ON} - {signal.SIGTERM}
    words = ["--run-dir", str(run_dir.absolute()), "--root-pid", str(job_pid)]
    command = own_python("fuelline.record.observer", words)
    try:
        with os.fdopen(open_own(run_dir / "observer.log", os.O_WRONLY), "wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: step_back(deaf),  # noqa: PLW1509 - no threads here
            )
    except OSError:
        return None  # `explain_observer` says so, for lack of an exit code


def _wait(job: subprocess.Popen[bytes]) -> int:
    """Wait for the job, passing on signals that were meant for it but sent to us alone."""
    while (returncode := job.poll()) is None:
        info = signal.sigwaitinfo({*PASSED_ON, signal.SIGCHLD})
        if info.si_signo != signal.SIGCHLD and info.si_code != _FROM_KERNEL:
            job.send_signal(info.si_signo)
    while signal.sigtimedwait(PASSED_ON, 0) is not None:
        pass  # meant for the job, which had it as well and has ended
    return returncode


def stop_observer(
    observer: subprocess.Popen[bytes] | None, grace_s: float = _OBSERVER_GRACE_S
) -> int | None:
    """Ask the observer to write its last samples and leave."""
    if observer is None:
        return None
    if observer.poll() is None:
        observer.terminate()
        try:
            observer.wait(grace_s)
        except subprocess.TimeoutExpired:
            return end_process(observer)
        if observer.returncode == -signal.SIGTERM:
            return 0  # the job was over before the observer could do more than start
    return observer.returncode


def end_process(process: subprocess.Popen[bytes]) -> int:
    """End it; not even that reaches a process that hangs in a driver, and nobody waits for one."""
    process.kill()
    try:
        return process.wait(_OBSERVER_GRACE_S)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


def explain_observer(code: int | None) -> dict[str, str]:
    """The blindspot of an observer that left before the job; None: it did not start."""
    how = "did not start" if code is None else f"ended with code {code}"
    if code == -signal.SIGKILL:
        how += "; the kernel ends it first when memory runs out"
    return {
        "what": "everything outside the job after that moment",
        "why": f"the observer {how} (see observer.log in the run's folder)",
        "forbids": "conclusions from thread states, host and cgroup counters over the whole run",
    }


def finish_facts(run_dir: Path, facts: dict[str, Any], returncode: int) -> str | None:
    """Write down how it ended; returns why that could not be done, if so."""
    ended = {**facts, "ended_ns": time.monotonic_ns(), "exit_code": returncode}
    path, content = run_dir / RUN_FILE, json.dumps(ended).encode()
    try:
        try:
            with write_whole(path) as file:
                file.write(content)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _write_over(path, content)
    except OSError as error:
        return error.strerror
    return None


def _write_over(path: Path, content: bytes) -> None:
    """On a full disk: the block that a small file has already holds the longer text as well."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        before = os.pread(fd, len(content), 0)
        if os.pwrite(fd, content, 0) < len(content):
            os.pwrite(fd, before, 0)
            os.ftruncate(fd, len(before))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
