"""Every private part of grain that the hooks stand on; nothing else names one.

Looked up when hooks are put in: what a release lacks is a blindspot, not an error.
"""

import os
import sys
from typing import Any

import grain

from fuelline.record.hooks.guest import Framework

__all__ = ["GRAIN", "find_iterators", "find_unmet", "list_inside", "read_settings"]

DATASETS = "grain._src.python.dataset.dataset"
LOADER = "grain._src.python.data_loader"
_INSIDE = ("_iterator", "_parents", "_iter_parent", "_map_parent", "_maybe_nonnative_parent")
"""Attributes of an iterator with those that it takes from."""
_THREADS, _AHEAD = ("_target_num_threads",), ("_target_prefetch_buffer_size", "_buffer_size")
_SLICES = "_datasets"
"""Of an iterator that takes turns at the workers: one for each of them."""
_MOST = 64


def find_unmet() -> str:
    """What this grain lacks; empty if nothing."""
    names = ((DATASETS, "DatasetIterator"), (LOADER, "DataLoaderIterator"))
    missing = [f"{m}.{name}" for m, name in names if not hasattr(sys.modules.get(m), name)]
    return f"grain {_version()} has no {', '.join(missing)}" if missing else ""


def find_iterators() -> list[type]:
    """All classes that have a `__next__` of their own."""
    found: list[type] = [sys.modules[LOADER].DataLoaderIterator]
    waiting: list[type] = [sys.modules[DATASETS].DatasetIterator]
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        found.append(each)
    return [each for each in found if "__next__" in vars(each)]


def list_inside(iterator: Any) -> list[Any]:
    """The iterator and those that it takes from, in the order of the data backwards."""
    found: list[Any] = []
    waiting = [iterator]
    while waiting and len(found) < _MOST:
        each = waiting.pop(0)
        found.append(each)
        own = getattr(each, "__dict__", {})
        for name in _INSIDE:
            inner = own.get(name)
            waiting += inner if isinstance(inner, tuple) else [inner] if inner is not None else []
    return found


def read_settings(found: list[Any]) -> dict[str, int | None]:
    """Threads that read ahead, elements that are kept ready, and worker processes."""
    slices = next((vars(each)[_SLICES] for each in found if _SLICES in _own(each)), ())
    return {
        "threads": _first(found, _THREADS),
        "prefetch_factor": _first(found, _AHEAD),
        "num_workers": len(slices) if isinstance(slices, list | tuple) and len(slices) else None,
    }


def _first(found: list[Any], names: tuple[str, ...]) -> int | None:
    values = (_own(each).get(name) for each in found for name in names)
    return next((value for value in values if type(value) is int), None)


def _own(thing: Any) -> dict[str, Any]:
    return getattr(thing, "__dict__", {})


def _version() -> str:
    return str(getattr(grain, "__version__", ""))


GRAIN = Framework(
    package="grain",
    folder=os.path.dirname(str(grain.__file__)) + os.sep,  # noqa: PTH120 - no pathlib here
    handlers=(),
    is_tracing=lambda: False,
)
