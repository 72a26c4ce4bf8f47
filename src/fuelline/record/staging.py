"""A run on network storage is recorded on a local one, and brought home at its end.

Hooks write from within the training: where a server takes its time, or is gone, each record would
hold the training up. The run's own folder says where the recording is meanwhile (`staged_in`), so
that it can be watched, and found if its launcher is killed. Standard library only: the launcher
stays small.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.schema.files import OWNER_FOLDER, write_whole
from fuelline.schema.mounts import is_slow

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_S = 600
"""A recording has some megabytes; a server that takes longer is gone."""
_PLACES = ("/var/tmp", "/tmp")
"""The first is a disk where the second is memory."""


def stage(run_dir: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> Path | None:
    """A new local folder of our own; None if `run_dir` is local, or if there is no such place."""
    try:
        mounts = os.fsdecode(mountinfo.read_bytes())
    except OSError:
        return None
    if not is_slow(str(run_dir.absolute()), mounts):
        return None
    wanted = os.environ.get("TMPDIR")
    for place in (wanted, *_PLACES) if wanted else _PLACES:
        if not is_slow(place, mounts):
            try:
                folder = Path(place) / f"fuelline-run-{os.urandom(8).hex()}"
                folder.mkdir(OWNER_FOLDER)
            except OSError:
                continue
            return folder
    return None


def bring_home(staged: Path, run_dir: Path, last: str) -> str | None:
    """Move a recording to its place, the file `last` as its last; why it stays, if it does.

    Whoever deletes a run under its job means it: then nothing is left in either place.
    """
    try:
        if run_dir.exists():
            later = shutil.ignore_patterns(last)
            shutil.copytree(staged, run_dir, symlinks=True, ignore=later, dirs_exist_ok=True)
            with write_whole(run_dir / last) as file:
                file.write((staged / last).read_bytes())
    except (OSError, shutil.Error) as error:
        return getattr(error, "strerror", None) or "some files could not be copied"
    shutil.rmtree(staged, ignore_errors=True)
    return None


def bring_home_apart(staged: Path, run_dir: Path, last: str, ends: Iterable[int]) -> str | None:
    """The same in its own process, called with signals held back.

    A server that does not answer must not keep the job's exit code: one of the signals `ends` gives
    up, and so does time. The process may be beyond killing then, and nobody waits for it.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, set(ends))
            code = 0 if bring_home(staged, run_dir, last) is None else 1
        finally:
            os._exit(code)
    until_s = time.monotonic() + LONGEST_S
    while (done := os.waitpid(pid, os.WNOHANG))[0] == 0:
        left_s = max(until_s - time.monotonic(), 0)
        info = signal.sigtimedwait({*ends, signal.SIGCHLD}, left_s)
        if info is None or info.si_signo != signal.SIGCHLD:
            os.kill(pid, signal.SIGKILL)
            return f"copying took over {LONGEST_S} s" if info is None else "copying was interrupted"
    return None if done[1] == 0 else "it could not be copied"
