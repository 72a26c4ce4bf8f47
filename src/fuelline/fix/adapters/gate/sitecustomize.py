"""The way of `feed`, packed data and the cache into every Python of the job.

Each is asked for by a variable of its own and does nothing without it. This folder leaves
`sys.path` and the `sitecustomize` that it shadows runs, as if we had not been here. What fails here
is told on standard error; the job goes on without us.
"""
# ruff: noqa: PTH100, PTH118, PTH120 - pathlib is not loaded at startup

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDER = os.path.join(HERE, "..", "..", "..", "record", "hooks", "site")


def _start() -> None:
    feed = os.environ.get("FUELLINE_FEED")
    paths = os.environ.get("FUELLINE_PATHS")
    if not feed and not paths:
        return
    sys.path.insert(0, RECORDER)
    try:
        # Found in the recorder's folder: it knows how to load the package and await an import.
        import fuelline_watch  # type: ignore[import-not-found]  # noqa: PLC0415

        if paths:
            _serve_paths(paths, fuelline_watch)
        if feed:
            watcher = fuelline_watch.Watcher(os.path.dirname(feed))
            sys.meta_path.insert(0, watcher)
            watcher.watch("torch.utils.data.dataloader", lambda: _feed(feed, fuelline_watch))
    except Exception as failure:  # noqa: BLE001 - the guard of this hook
        sys.stderr.write(f"fuelline: not active in this process: {failure!r}\n")
    finally:
        sys.path.remove(RECORDER)


def _serve_paths(plan: str, watch: object) -> None:
    watch._load_package()  # type: ignore[attr-defined]  # noqa: SLF001
    from fuelline.fix.adapters.paths import install  # noqa: PLC0415 - exists only from here on

    watcher = watch.Watcher("/nonexistent")  # type: ignore[attr-defined]  # no folder for notes
    sys.meta_path.insert(0, watcher)
    install(plan, watcher.watch)


def _feed(plan: str, watch: object) -> None:
    """Install when the first loader is made: then torch is complete and the recorder in place."""
    owner = sys.modules["torch.utils.data.dataloader"].DataLoader
    original = owner.__init__

    def init(self: object, *args: object, **kwargs: object) -> None:
        if owner.__init__ is init:
            owner.__init__ = original
            watch._load_package()  # type: ignore[attr-defined]  # noqa: SLF001
            from fuelline.fix.adapters.feed import install  # noqa: PLC0415 - exists only from here on

            install(plan)
        original(self, *args, **kwargs)

    init.__wrapped__ = original  # type: ignore[attr-defined]  # its signature is asked for
    owner.__init__ = init


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
