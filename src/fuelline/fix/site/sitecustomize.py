"""The way of trials, fixes, `feed`, packed data and the cache into every Python of the job.

Each is asked for by its own variable and does nothing without it. This folder leaves
`sys.path` and the `sitecustomize` that it shadows runs, as if we had not been here. What fails here
is reported on standard error and leaves a note for the report; the job goes on without us.
"""
# ruff: noqa: PTH100, PTH118, PTH120 - pathlib is not loaded at startup

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDER = os.path.join(HERE, "..", "..", "record", "hooks", "site")
LOADER = "torch.utils.data.dataloader"
AUTOGRAD = "torch.autograd"
LOADING = "torch.utils.data"
"""The whole of it; its loader is there before."""
PART = "remedies"
"""In the names of notes about what failed."""
ITERATORS = "tensorflow.python.data.ops.iterator_ops"
TRAINER = "keras.src.backend.tensorflow.trainer"
STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"


def _start() -> None:
    names = ("FUELLINE_TRIALS", "FUELLINE_FIX", "FUELLINE_FEED", "FUELLINE_PATHS")
    plan, fix, feed, paths = (os.environ.get(name) for name in names)
    if not (plan or fix or feed or paths):
        return
    file = plan or feed
    run_dir = os.path.dirname(file) if file else os.environ.get("FUELLINE_RUN_DIR", "/nonexistent")
    sys.path.insert(0, RECORDER)
    try:
        # Found in the recorder's folder: it knows how to load the package and await an import.
        import fuelline_watch as watch  # type: ignore[import-not-found]  # noqa: PLC0415

        if paths:
            _serve_paths(paths, watch, run_dir)
        if plan:
            _await(watch, run_dir, LOADING, lambda: _try_settings(plan, watch))
        elif fix:
            _await(watch, run_dir, LOADING, lambda: _stretch(run_dir, fix, watch))
            _await(watch, run_dir, STATEFUL, _leave_stateful)
            _widen_pools(run_dir, watch)
        elif feed:
            _feed(feed, watch)
    except Exception as failure:  # noqa: BLE001 - the guard of this hook
        _say(f"fuelline: not active in this process: {failure!r}\n")
        found = sys.modules.get("fuelline_watch")
        if found is not None:  # else there is no more than the line above
            found.leave_note(run_dir, f"the start: {failure!r}", PART)
    finally:
        sys.path.remove(RECORDER)


def _await(watch: object, run_dir: str, module: str, action: object) -> None:
    watcher = watch.Watcher(run_dir, PART)  # type: ignore[attr-defined]
    sys.meta_path.insert(0, watcher)
    watcher.watch(module, action)


def _try_settings(plan: str, watch: object) -> None:
    is_ready = False
    try:
        watch.load_package()  # type: ignore[attr-defined]
        from fuelline.fix.tune import trials  # noqa: PLC0415 - exists only from here on

        trials.install(plan)
        is_ready = True
    finally:
        if not is_ready:  # this process exists for the trial alone, and must not train on and on
            failure = sys.exc_info()[1]
            _say(f"fuelline: no trial is possible with this torch: {failure!r}\n")
            os._exit(70)


def _stretch(run_dir: str, fix: str, watch: object) -> None:
    watch.load_package()  # type: ignore[attr-defined]
    from fuelline.fix.elastic import entry  # noqa: PLC0415 - exists only from here on

    ray = os.environ.get("FUELLINE_RAY")
    entry.install(run_dir, fix, _make_crews(ray) if ray else None)


def _make_crews(ray: str) -> object:
    """What gives a loader workers on other hosts; torch is whole when the first loader asks."""

    def make(number: int, journal: object) -> object:
        from fuelline.fix.remote.crew import RemoteCrew  # noqa: PLC0415 - as said

        return RemoteCrew(ray, number, journal)  # type: ignore[arg-type]

    return make


def _widen_pools(run_dir: str, watch: object) -> None:
    fixes: list[object] = []

    def follow_iterators() -> None:
        watch.load_package()  # type: ignore[attr-defined]
        from fuelline.fix.datasets import entry  # noqa: PLC0415 - exists only from here on

        fixes.append(entry.install(run_dir))

    def follow_fit() -> None:
        from fuelline.fix.datasets import entry  # noqa: PLC0415 - exists only after the above

        entry.install_fit(fixes[0])  # type: ignore[arg-type]  # an object before the package is there

    _await(watch, run_dir, ITERATORS, follow_iterators)
    _await(watch, run_dir, TRAINER, follow_fit)


def _leave_stateful() -> None:
    from fuelline.fix.elastic import entry  # noqa: PLC0415 - exists only after `_stretch`

    entry.leave_stateful()


def _serve_paths(plan: str, watch: object, run_dir: str) -> None:
    watch.load_package()  # type: ignore[attr-defined]
    from fuelline.fix.files.paths import install  # noqa: PLC0415 - exists only from here on

    watcher = watch.Watcher(run_dir, PART)  # type: ignore[attr-defined]
    sys.meta_path.insert(0, watcher)
    install(plan, watcher.watch, run_dir)


def _feed(plan: str, watch: object) -> None:
    """Install when the first loader is made: then torch is complete and the recorder in place.

    A script that comes to `backward` without one has none that can be fed, and must not train on.
    """
    installed: list[object] = []

    def install_once() -> object:
        if not installed:
            watch.load_package()  # type: ignore[attr-defined]
            from fuelline.probe.feed import install  # noqa: PLC0415 - exists only from here on

            installed.append(install(plan))
        return installed[0]

    def follow_loader() -> None:
        owner = sys.modules[LOADER].DataLoader
        original = owner.__init__

        def init(self: object, *args: object, **kwargs: object) -> None:
            owner.__init__ = original
            install_once().is_made = True  # type: ignore[attr-defined]
            original(self, *args, **kwargs)

        init.__wrapped__ = original  # type: ignore[attr-defined]  # its signature is asked for
        owner.__init__ = init

    def follow_backward() -> None:
        owner = sys.modules[AUTOGRAD]
        original = owner.backward

        def backward(*args: object, **kwargs: object) -> object:
            install_once().prove()  # type: ignore[attr-defined]
            return original(*args, **kwargs)

        backward.__wrapped__ = original  # type: ignore[attr-defined]  # likewise
        owner.backward = backward  # type: ignore[attr-defined]

    _await(watch, os.path.dirname(plan), LOADER, follow_loader)
    _await(watch, os.path.dirname(plan), AUTOGRAD, follow_backward)


def _say(line: str) -> None:
    """As `fix.messages.say`, before there is a package to import it from."""
    try:
        number = sys.__stderr__.fileno()  # type: ignore[union-attr]  # None: as said below
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


_start()
_step_aside()
_run_shadowed()
