"""A run that lies on a network's disk is recorded on a local one, and brought home at its end.

Hooks write from within the training: where a server takes its time, or is gone, each record would
hold the training up. The run's own folder says where the recording is meanwhile (`staged_in`), so
that it can be watched, and found if its launcher is killed. Standard library only: the launcher
stays small.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fuelline.schema.files import OWNER_FOLDER
from fuelline.schema.mounts import is_slow

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
            shutil.copy2(staged / last, run_dir / f".{last}")
            (run_dir / f".{last}").replace(run_dir / last)
    except (OSError, shutil.Error) as error:
        reason = getattr(error, "strerror", None) or "some files could not be copied"
        return f"it stays in {staged} ({reason})"
    shutil.rmtree(staged, ignore_errors=True)
    return None
