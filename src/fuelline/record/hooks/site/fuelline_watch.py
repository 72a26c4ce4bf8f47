"""Waits for modules to be imported, and acts once they are: how hooks learn that a framework is.

The watcher finds nothing itself. It lets the other finders answer and puts a one-time
`exec_module` on the answer's loader *instance*, so specs, loaders, reloads and lazy imports stay
what they are. An action that fails leaves a note in the run's folder; the import that triggered it
succeeds anyway.
"""
# ruff: noqa: PTH100, PTH110, PTH118, PTH120, PTH123, PTH208 - pathlib is not loaded at startup

import os
import sys
from time import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

YAMA = "/proc/sys/kernel/yama/ptrace_scope"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
HOOKS = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
PACKAGE = os.path.abspath(os.path.join(HOOKS, "..", ".."))

MOST_BEGUN = 100
_STANDARD: "frozenset[str]" = getattr(sys, "stdlib_module_names", frozenset())
BEGUN: "list[tuple[int, str]]" = []
"""When this module was loaded, and when the import of each package outside the standard library
began, as far as `find_spec` is asked anyway: 0.2 us each."""


class Watcher:
    """A finder for `sys.meta_path` that runs an action after a named module was imported."""

    def __init__(self, run_dir: str, part: str = "hooks") -> None:
        self._run_dir = run_dir
        self._part = part
        self._actions: dict[str, list[Callable[[], None]]] = {}
        self._asked: set[str] = set()

    def watch(self, name: str, action: "Callable[[], None]") -> None:
        """Run `action` when the module has been imported: now, if it already is."""
        self._actions.setdefault(name, []).append(action)
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            self._act(name)

    def stop(self) -> None:
        """Wait for nothing any more."""
        self._actions.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Answer for watched names only, with what the other finders answer."""
        if "." not in name and len(BEGUN) < MOST_BEGUN and name not in _STANDARD:
            BEGUN.append((monotonic_ns(), name))
        if name not in self._actions or name in self._asked:
            return None
        self._asked.add(name)  # another watcher of the same module asks us in turn
        try:
            for finder in sys.meta_path:
                if finder is not self:
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        self._follow(spec.loader, name)
                        return spec
        finally:
            self._asked.discard(name)
        return None

    def _follow(self, loader: "Any", name: str) -> None:
        own = getattr(loader, "__dict__", None)
        if type(own) is not dict:
            return  # a loader that is a class or a C type
        before = own.get("exec_module")
        if before is not None and getattr(before, "__module__", "") != __name__:
            return  # somebody else's

        def exec_module(module: "ModuleType") -> None:
            own.pop("exec_module", None)
            (before or loader.exec_module)(module)
            self._act(name)

        own["exec_module"] = exec_module

    def _act(self, name: str) -> None:
        for action in self._actions.pop(name, ()):
            self._run(name, action)

    def _run(self, name: str, action: "Callable[[], None]") -> None:
        try:
            action()
        except Exception as failure:  # noqa: BLE001 - the guard of this hook
            leave_note(self._run_dir, f"{name}: {failure!r}", self._part)


def start(run_dir: str) -> None:
    """Begin to wait for the frameworks that the hooks know; called once, at interpreter start."""
    BEGUN.append((monotonic_ns(), ""))
    _allow_observer()
    run_dir = os.path.abspath(run_dir)
    watcher = Watcher(run_dir)
    sys.meta_path.insert(0, watcher)
    for framework in list_frameworks():
        watcher.watch(framework, lambda name=framework: _hook(name, run_dir, watcher))  # type: ignore[misc]


def list_frameworks() -> "list[str]":
    """Modules for which there are hooks: in a folder of that name, whose `install` puts them in."""
    names = os.listdir(HOOKS)
    return [name for name in names if os.path.exists(os.path.join(HOOKS, name, "install.py"))]


def _hook(framework: str, run_dir: str, watcher: Watcher) -> None:
    _stay_on_this_host()
    load_package()
    from importlib import import_module  # noqa: PLC0415 - only a process that uses it pays for it

    adapter = import_module(f"fuelline.record.hooks.{framework}.install")
    adapter.install(run_dir, watcher.watch)


def is_this_host() -> bool:
    """A launcher such as srun carries our variables to other hosts, whose clocks are not ours."""
    boot_id = os.environ.get("FUELLINE_BOOT_ID")
    return not boot_id or boot_id.encode() == _read(BOOT_ID).strip()


def _stay_on_this_host() -> None:
    if not is_this_host():
        raise RuntimeError(
            f"it runs on {os.uname().nodename}, another host than `fuelline run`. "
            "Start a recorder on each host: `srun fuelline run --node-rank auto --run-dir DIR ...`"
        )


def load_package() -> None:
    """Make `fuelline` importable from its own folder; the job's environment may not have it."""
    from importlib import util  # noqa: PLC0415 - only a process that uses torch pays for it

    init = os.path.join(PACKAGE, "__init__.py")
    known = sys.modules.get("fuelline")
    if known is not None:
        if known.__file__ != init:
            raise ImportError(f"the job has imported another fuelline: {known.__file__}")
        return
    spec = util.spec_from_file_location("fuelline", init, submodule_search_locations=[PACKAGE])
    if spec is None or spec.loader is None:
        raise ImportError(f"no package at {PACKAGE}")
    module = util.module_from_spec(spec)
    sys.modules["fuelline"] = module
    spec.loader.exec_module(module)


def _allow_observer() -> None:
    """Where Yama restricts ptrace to ancestors, name the observer, which is none of the job's."""
    observer = os.environ.get("FUELLINE_OBSERVER_PID", "")
    if observer.isdecimal() and _read(YAMA).strip() == b"1":
        # Found in this folder; loads ctypes, so only where it is needed.
        import fuelline_ptrace  # type: ignore[import-not-found]  # noqa: PLC0415

        fuelline_ptrace.allow(int(observer))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def leave_note(run_dir: str, text: str, part: str = "hooks") -> None:
    """What could not be done in this process; the reader makes a blindspot of it."""
    path = f"{run_dir}/{part}-failed-{os.getpid()}.txt"
    # The name can be guessed: no link is written through, and a pipe that nobody reads is refused.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with open(os.open(path, flags, 0o600), "ab") as file:
            file.write(_redacted(text).encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        return  # a folder that cannot be written has no spool either; the reader will say so


def _redacted(text: str) -> str:
    """What failed, without secrets: asks the one file that knows them, whose `fuelline` it be."""
    try:
        from importlib import util  # noqa: PLC0415 - as above

        path = os.path.join(PACKAGE, "schema", "redaction.py")
        spec = util.spec_from_file_location("fuelline_redaction", path)
        module = util.module_from_spec(spec)  # type: ignore[arg-type]  # None: as told below
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        return str(module.redact(text))
    except Exception:  # noqa: BLE001 - the guard's own: the file is gone, or this Python too old
        return text.partition("(")[0]
