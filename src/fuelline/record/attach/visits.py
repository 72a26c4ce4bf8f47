"""Hooks in a running job, where its Python allows it: `sys.remote_exec`, from 3.14 on (PEP 768).

A process is asked to execute a file of two lines, which it does when its main thread next runs
Python. Below 3.14 there is no way that cannot crash it, and nothing is put in. Out they come when
our lock is free: when we let go of it, or are gone (`record/hooks/site/fuelline_visitor.py`).
"""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from fuelline.record.attach.processes import Seen
from fuelline.record.hooks import SITE_DIR
from fuelline.record.samplers.procfs import find_link, find_text
from fuelline.schema.files import make_folder, open_own
from fuelline.schema.wire import RUN_DIR_VARIABLE

OLDEST_PYTHON = (3, 14)
_LOCK, _VISITS = "attached.lock", "visits"
_DISABLED = "PYTHON_DISABLE_REMOTE_DEBUG"
_SCRIPT = """\
import importlib.util as u; s = u.spec_from_file_location("fuelline_visitor", {path!r})
m = u.module_from_spec(s); s.loader.exec_module(m); m.come({run_dir!r})
"""
_ASK = "import sys; [sys.remote_exec(int(pid), sys.argv[1]) for pid in sys.argv[2:]]"
_ASKING_S = 20.0
_APART_S = 0.05
COMING_S, LEAVING_S = 8.0, 8.0
"""A process that is in a long call of a library in C comes when that returns."""


def explain_no_hooks(seen: Seen) -> str:
    """Why no hooks can be put into a process; empty if they can."""
    major, _, minor = seen.python.partition(".")
    version = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
    if version < OLDEST_PYTHON:
        has = f"runs Python {seen.python}" if seen.python else "has no Python in it"
        return f"it {has}; hooks can be put into a running process from Python 3.14 on"
    names = {
        each.partition("=")[0]
        for each in (find_text(f"/proc/{seen.pid}/environ") or "").split("\0")
    }
    reasons = (
        (seen.uid != os.geteuid(), "it belongs to another user, who could not write the recording"),
        (_differs(seen.pid, "ns/mnt"), "it is in a container: attach from inside of that"),
        (_differs(seen.pid, "root"), "it has another root folder: attach from inside of that"),
        (_DISABLED in names, f"{_DISABLED} is set in its environment"),
        (RUN_DIR_VARIABLE in names, "`fuelline run` records it: `fuelline watch` shows that"),
    )
    return next((why for is_so, why in reasons if is_so), "")


def _differs(pid: int, link: str) -> bool:
    return find_link(f"/proc/{pid}/{link}") != find_link(f"/proc/self/{link}")


class Visits:
    """Hooks in the processes of one job."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir.absolute()
        self._lock_fd = -1
        self._pids: list[int] = []

    def begin(self, processes: Iterable[Seen], wait: Callable[[float], object]) -> str:
        """Ask them in, and wait until the first has come; why nobody was asked, if so."""
        make_folder(self._run_dir / _VISITS)
        self._lock_fd = open_own(self._run_dir / _LOCK, os.O_WRONLY)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        script = self._run_dir / "visit.py"
        path = os.path.join(SITE_DIR, "fuelline_visitor.py")  # noqa: PTH118 - as hooks name it
        text = _SCRIPT.format(path=path, run_dir=str(self._run_dir))
        with os.fdopen(open_own(script, os.O_WRONLY), "w") as file:
            file.write(text)
        by_python: dict[str, list[int]] = {}
        for each in processes:
            by_python.setdefault(find_link(f"/proc/{each.pid}/exe") or sys.executable, []).append(
                each.pid
            )
        problems = [self._ask(python, script, pids) for python, pids in by_python.items()]
        if not self._pids:
            return next(filter(None, problems), "no process could be asked")
        self._wait_while(lambda: not self._list_visited(), COMING_S, wait)
        return ""

    def _ask(self, python: str, script: Path, pids: list[int]) -> str:
        """By their own interpreter: the two must be of one release."""
        words = [python, "-I", "-S", "-c", _ASK, str(script), *map(str, pids)]
        try:
            asked = subprocess.run(
                words, capture_output=True, text=True, timeout=_ASKING_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        if asked.returncode:
            return (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        self._pids += pids
        return ""

    def _list_visited(self) -> list[str]:
        try:
            return os.listdir(self._run_dir / _VISITS)  # noqa: PTH208 - names are enough
        except OSError:
            return []

    def list_absent(self) -> list[int]:
        """Those that were asked, run, and have no hooks in them."""
        present = set(self._list_visited())
        return [
            pid for pid in self._pids if str(pid) not in present and find_link(f"/proc/{pid}/exe")
        ]

    def end(self, wait: Callable[[float], object]) -> list[str]:
        """Let the hooks go; gives the processes that still have them after some seconds."""
        if self._lock_fd < 0:
            return []
        os.close(self._lock_fd)
        self._lock_fd = -1
        self._wait_while(self._list_staying, LEAVING_S, wait)
        return self._list_staying()

    def _list_staying(self) -> list[str]:
        return [pid for pid in self._list_visited() if find_link(f"/proc/{pid}/exe")]

    def _wait_while(
        self, is_so: Callable[[], object], seconds: float, wait: Callable[[float], object]
    ) -> None:
        until_s = time.monotonic() + seconds
        while is_so() and time.monotonic() < until_s:
            wait(_APART_S)
