"""The way into every Python of the job; `fuelline run` puts this folder first on PYTHONPATH.

It starts the watcher for imports, takes its folder off `sys.path`, and then runs the
`sitecustomize` that it shadows, whose errors are treated by Python as without us. It must stay
cheap and import nothing: it also runs in each short-lived `python -c` that the job starts.
"""
# ruff: noqa: PTH120 - pathlib is not loaded at startup

import os
import sys


def _start_watching() -> None:
    run_dir = os.environ.get("FUELLINE_RUN_DIR")
    if not run_dir or "fuelline_watch" in sys.modules:
        return
    try:
        # Found in this folder, while it is still on the path.
        import fuelline_watch  # type: ignore[import-not-found]  # noqa: PLC0415

        fuelline_watch.start(run_dir)
    except Exception as failure:  # noqa: BLE001 - the guard of this hook
        _tell(f"fuelline: this process is not recorded: {failure!r}\n")
        watch = sys.modules.get("fuelline_watch")
        if watch is not None:  # else there is no more than the line above
            watch.leave_note(run_dir, f"the start: {failure!r}")


def _tell(line: str) -> None:
    """Write to standard error; where there is none, number 2 may be a file of the job's."""
    try:
        number = sys.__stderr__.fileno()  # type: ignore[union-attr]  # None: as told below
        os.write(number, line.encode("utf-8", "backslashreplace"))
    except (AttributeError, OSError, ValueError):
        return  # None, not writable, closed


def _step_aside() -> None:
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)


def _run_shadowed() -> None:
    ours = sys.modules.pop("sitecustomize")
    try:
        # Another one, now that we have left the path.
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    except ImportError as missing:
        if missing.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


_start_watching()
_step_aside()
_run_shadowed()
