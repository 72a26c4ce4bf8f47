"""The way of a trial into the job; `fuelline tune` puts this folder on PYTHONPATH.

Waits for torch's loader to be imported, puts the trial in its place, and runs the `sitecustomize`
that it shadows. Without the trial's variable it does nothing.
"""
# ruff: noqa: PTH118, PTH120 - pathlib is not loaded at startup

import os
import sys


def _start() -> None:
    plan = os.environ.get("FUELLINE_TRIALS")
    if not plan:
        return
    here = os.path.dirname(__file__)
    recorder = os.path.join(here, "..", "..", "..", "record", "hooks", "site")
    sys.path.insert(0, recorder)
    try:
        # Found in the recorder's folder: it knows how to wait for an import.
        import fuelline_watch  # type: ignore[import-not-found]  # noqa: PLC0415

        watcher = fuelline_watch.Watcher(os.path.dirname(plan))
        sys.meta_path.insert(0, watcher)
        watcher.watch("torch.utils.data", lambda: _install(plan, fuelline_watch))
    except Exception as failure:  # noqa: BLE001 - the guard of this hook
        sys.stderr.write(f"fuelline: no trial in this process: {failure!r}\n")
    finally:
        sys.path.remove(recorder)


def _install(plan: str, watch: object) -> None:
    try:
        watch._load_package()  # type: ignore[attr-defined]  # noqa: SLF001
        from fuelline.fix.adapters.trials import install  # noqa: PLC0415 - exists only from here on

        install(plan)
    except Exception as failure:  # noqa: BLE001 - the guard of this hook
        # This process exists for the trial alone; without one it must not train on and on.
        sys.stderr.write(f"fuelline: no trial is possible with this torch: {failure!r}\n")
        sys.stderr.flush()
        os._exit(70)


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


_start()
_step_aside()
_run_shadowed()
