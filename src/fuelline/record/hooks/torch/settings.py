"""A loader's settings as they go into the recording, read without running any code of the job.

Values come from the instance's own dictionary, because a subclass may compute its attributes. A
length that only the dataset's `__len__` knows is left out: that may scan a disk.
"""

import json
import multiprocessing
from typing import Any

from torch.utils.data import ConcatDataset, TensorDataset, default_collate, default_convert

from fuelline.record.hooks.torch import seam

__all__ = ["describe", "describe_iterator", "is_spawned"]

NAME_CHARACTERS = 100
"""Longest name kept; generated class names can be of any length."""

_ITERABLE = seam.DatasetKind.Iterable
_DATASET_KIND = seam.DATASET_KIND
_PLAIN = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "drop_last",
    "in_order",
    "timeout",
)


def describe(loader: Any) -> str:
    """The loader's settings as JSON."""
    own = vars(loader)
    settings = {name: _plain(own.get(name)) for name in _PLAIN}
    settings["loader"] = _name(loader)
    settings["dataset"] = _name(own.get("dataset"))
    settings["dataset_length"] = _length(own.get("dataset"))
    settings["sampler"] = _name(own.get("sampler"))
    settings["style"] = _style(own.get(_DATASET_KIND))
    settings["collate"] = _collate(own.get("collate_fn"))
    settings["context"] = _context(own) if own.get("num_workers") else None
    return json.dumps(settings)


def describe_iterator(iterator: Any) -> str:
    """The little that an iterator knows whose loader was never seen, as JSON."""
    own = vars(iterator)
    settings = {
        "loader": _name(iterator),
        "dataset": _name(own.get(seam.DATASET)),
        "num_workers": _plain(own.get(seam.NUM_WORKERS)),
        "pin_memory": _plain(own.get(seam.PIN_MEMORY)),
        "style": _style(own.get(_DATASET_KIND)),
    }
    return json.dumps(settings)


def is_spawned(loader: Any) -> bool:
    """Whether the loader's workers start a Python of their own."""
    own = vars(loader)
    if not own.get("num_workers"):
        return False
    return (_context(own) or multiprocessing.get_all_start_methods()[0]) != "fork"


def _plain(value: Any) -> Any:
    return value if type(value) in {int, float, bool} else None


def _name(thing: Any) -> str | None:
    if thing is None:
        return None
    kind = type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"[:NAME_CHARACTERS]


def _style(kind: int | None) -> str:
    return "iterable" if kind == _ITERABLE else "map"


def _collate(function: Any) -> str | None:
    if function is default_collate or function is default_convert:
        return "default"
    name = getattr(function, "__qualname__", None)
    return name[:NAME_CHARACTERS] if type(name) is str else _name(function)


def _context(own: dict[str, Any]) -> str | None:
    context = own.get(seam.CONTEXT)
    if context is None:
        return multiprocessing.get_start_method(allow_none=True)
    name = getattr(context, "_name", None)
    return name if type(name) is str else None


def _length(dataset: Any) -> int | None:
    kind = type(dataset)
    if kind in {list, tuple, range, dict}:
        return len(dataset)
    if kind is TensorDataset:
        return int(dataset.tensors[0].shape[0])
    if kind is ConcatDataset:
        return int(dataset.cumulative_sizes[-1])
    return None
