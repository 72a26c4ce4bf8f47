"""Records the process that it is called in, from one moment to another: for notebooks and tests.

The same as `launch` with the parts changed about: the hooks come into this process, which has its
framework already or imports it later, and into those that it forks; the observer is its child. When
it ends, everything is as it was: hooks out, observer gone, no variable set. What fails costs the
recording, never the job. What a launcher would see and this cannot is a blindspot of the run.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module, util
from typing import TYPE_CHECKING, Any

from fuelline.record.headroom import find_extent
from fuelline.record.hooks import SITE_DIR
from fuelline.record.launch import (
    describe_run,
    explain_observer,
    finish_facts,
    go_first,
    own_python,
    prepare_folder,
    stop_observer,
)
from fuelline.record.staging import bring_home, stage
from fuelline.schema.errors import UsageError
from fuelline.schema.files import open_own
from fuelline.schema.run.run_folder import RUN_FILE
from fuelline.schema.wire import RUN_DIR_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.record.hooks.guest import Guest

_YAMA = "/proc/sys/kernel/yama/ptrace_scope"

_current: list[ProcessRecording] = []
"""What records in this process, or recorded in the one that it was forked from; one at most."""


class ProcessRecording:
    """One recording of this process."""

    def __init__(self, run_dir: Path, *, shown: list[str] | None) -> None:
        self.run_dir = run_dir
        self._shown = shown
        self._pid = os.getpid()
        self._folder = run_dir
        self._facts: dict[str, Any] = {}
        self._observer: subprocess.Popen[bytes] | None = None
        self._is_watched = False
        self._undo: list[Callable[[], object]] = []
        self._over = mmap.mmap(-1, 1)  # shared with children that are forked
        self._unhook: list[Callable[[], object]] = []

    def start(self) -> str | None:
        """Begin; why nothing is recorded, if so. UsageError if something records here already."""
        check_alone()
        extent = find_extent()
        if extent.kind == "nothing":
            return extent.why
        facts = describe_run(list(sys.orig_argv), self._shown, self.run_dir, extent)
        facts["blindspots"] += _tell_started_before()
        staged = stage(self.run_dir)
        problem = prepare_folder(self.run_dir, staged, facts)
        if problem is not None:
            return problem
        self._facts, self._folder = facts, staged or self.run_dir
        _current.append(self)
        try:
            if extent.kind == "whole":
                self._is_watched = True
                self._observer = _start_observer(self._folder)
                self._allow_observer()
            self._hook()
        except BaseException:
            self.stop(1)
            shutil.rmtree(self.run_dir, ignore_errors=True)
            raise
        return None

    def stop(self, exit_code: int) -> str | None:
        """End, and put everything back; what is wrong with the recording, if anything is.

        In a child that was forked meanwhile, and leaves through the same block, nothing is done.
        """
        if os.getpid() != self._pid or self not in _current:
            return None
        _current.remove(self)
        self._over[0] = 1
        for undo in (*reversed(self._undo), *self._unhook):
            undo()
        code = stop_observer(self._observer)
        if self._is_watched and code != 0:
            self._facts["blindspots"].append(explain_observer(code))
        lacking = finish_facts(self._folder, self._facts, exit_code)
        if self._folder == self.run_dir:
            return lacking
        why = bring_home(self._folder, self.run_dir, RUN_FILE)
        return lacking if why is None else f"it is still in {self._folder} ({why})"

    def _hook(self) -> None:
        """Hook each framework, now or when it is imported."""
        watch = _load_from_site("fuelline_watch")
        watcher = watch.Watcher(str(self._folder))
        sys.meta_path.insert(0, watcher)
        self._undo.append(watcher.stop)

        def hook(framework: str) -> None:
            adapter = import_module(f"fuelline.record.hooks.{framework}.install")
            installed = adapter.install(str(self._folder), watcher.watch, self._prepare)
            self._unhook.append(installed.uninstall)

        for framework in watch.list_frameworks():
            watcher.watch(framework, partial(hook, framework))

    def _prepare(self, guest: Guest) -> None:
        guest.reaches_spawned = False
        over = self._over
        guest.is_over = lambda: over[0] != 0

    def _allow_observer(self) -> None:
        """Where Yama restricts ptrace to ancestors, name the observer, which is none."""
        if self._observer is not None and _read(_YAMA).strip() == b"1":
            forbid = _load_from_site("fuelline_ptrace").allow(self._observer.pid)
            self._undo.append(forbid)


def check_alone() -> None:
    """Raise if this process is recorded already, by us or by `fuelline run`."""
    if _current:
        raise UsageError(
            f"This process is being recorded already, into {_current[0].run_dir}. Nothing was "
            "started, as two recordings would count each other. Leave the inner "
            "fuelline.record() out, or let the outer one end first."
        )
    run_dir = os.environ.get(RUN_DIR_VARIABLE)
    if run_dir and "fuelline_watch" in sys.modules:
        raise UsageError(
            f"This process is being recorded by `fuelline run` already, into {run_dir}. Nothing "
            "was started, as two recordings would count each other. Leave fuelline.record() out, "
            "or start the script without `fuelline run`."
        )


def _start_observer(folder: Path) -> subprocess.Popen[bytes] | None:
    """In its own session, so that a Ctrl-C here is none there."""
    words = ["--run-dir", str(folder.absolute()), "--root-pid", str(os.getpid())]
    try:
        with os.fdopen(open_own(folder / "observer.log", os.O_WRONLY), "wb") as log:
            observer = subprocess.Popen(
                own_python("fuelline.record.observer", words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except OSError:
        return None  # `explain_observer` says so, for lack of an exit code
    go_first(observer.pid)
    return observer


def _tell_started_before() -> list[dict[str, str]]:
    """Children of this process: the hooks are in none of them."""
    children: list[bytes] = []
    try:
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - /proc
            children += _read(f"/proc/self/task/{thread}/children").split()
    except OSError:
        return []
    if not children:
        return []
    return [
        {
            "what": f"{_count(len(children))} before fuelline.record() was called",
            "why": "hooks only get into processes that are forked afterwards",
            "forbids": "knowing what loader workers among them spend their time on",
        }
    ]


def _count(processes: int) -> str:
    return f"{processes} processes that ran" if processes > 1 else "a process that ran"


def _load_from_site(name: str) -> Any:
    """A module of the folder that `fuelline run` puts on a job's path, from where it is."""
    spec = util.spec_from_file_location(f"{name}_inside", os.path.join(SITE_DIR, f"{name}.py"))  # noqa: PTH118
    if spec is None or spec.loader is None:
        raise ImportError(f"no {name} in {SITE_DIR}")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - /proc
            return file.read()
    except OSError:
        return b""
