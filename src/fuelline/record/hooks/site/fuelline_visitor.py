"""Hooks that come into a process that runs already, and go again: `fuelline attach --hooks`.

The process executes two lines that load this file and call `come`; below Python 3.14 nothing can
ask it to. The hooks are those of `fuelline run`. They stay for as long as somebody holds a lock on
`LOCK` in the run's folder: a thread of ours waits for it to become free, asleep in the kernel, and
puts everything back. So they also go if who attached was killed.
"""
# ruff: noqa: PTH100, PTH108, PTH118, PTH120 - a guest loads little

import fcntl
import mmap
import os
import sys
from _thread import start_new_thread
from functools import partial
from importlib import import_module, util

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LOCK = "attached.lock"
VISITS = "visits"
"""Folder with a file for each process that has hooks in it, by its number."""
_RUN_DIR = "FUELLINE_RUN_DIR"


class Visit:
    """What was put into this process."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._pid = os.getpid()
        self._mark = f"{run_dir}/{VISITS}/{self._pid}"
        self._over = mmap.mmap(-1, 1)  # shared with workers that are forked meanwhile
        self._undo: list[Callable[[], object]] = []
        self._watch = _load("fuelline_watch")

    def begin(self) -> None:
        """Hook every framework that is loaded or will be."""
        try:
            _check_alone()
            lock_fd = os.open(f"{self._run_dir}/{LOCK}", os.O_RDONLY | os.O_CLOEXEC)
            self._hook()
            start_new_thread(self._wait, (lock_fd,))
            os.close(os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except Exception as failure:  # noqa: BLE001 - the guard: nothing is raised into the job
            self._watch.leave_note(self._run_dir, f"hooks: {failure!r}")
            self._leave()

    def _hook(self) -> None:
        watcher = self._watch.Watcher(self._run_dir)
        self._watch.load_package()
        sys.meta_path.insert(0, watcher)
        self._undo.append(watcher.stop)

        def hook(framework: str) -> None:
            adapter = import_module(f"fuelline.record.hooks.{framework}.install")
            installed = adapter.install(self._run_dir, watcher.watch, self._prepare)
            self._undo.append(installed.uninstall)

        for framework in self._watch.list_frameworks():
            watcher.watch(framework, partial(hook, framework))

    def _prepare(self, guest: "Any") -> None:
        over = self._over
        guest.is_over = lambda: over[0] != 0

    def _wait(self, lock_fd: int) -> None:
        """Until who attached has gone; a fork has no such thread, and asks `is_over`."""
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_SH)
        except OSError:  # no locks on this disk: then the hooks must not stay
            pass
        os.close(lock_fd)
        self._leave()

    def _take_out(self, undo: "Callable[[], object]") -> None:
        try:
            undo()
        except Exception as failure:  # noqa: BLE001 - the guard: the others must go, too
            self._watch.leave_note(self._run_dir, f"taking hooks out: {failure!r}")

    def _leave(self) -> None:
        self._over[0] = 1
        undo, self._undo = self._undo, []
        for each in reversed(undo):
            self._take_out(each)
        try:
            os.unlink(self._mark)
        except OSError:
            return


def _check_alone() -> None:
    if os.environ.get(_RUN_DIR) and "fuelline_watch" in sys.modules:
        raise RuntimeError("the process is being recorded by `fuelline run` already")


def _load(name: str) -> "Any":
    """A file of this folder, without its folder on the path."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = util.spec_from_file_location(f"{name}_visiting", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no {path}")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def come(run_dir: str) -> None:
    """Put the hooks in, until the lock is free."""
    Visit(run_dir).begin()
