"""All that the hooks use of torch without a promise that it stays; nobody else names it (SLF001).

`seam.NAME` is the part of that name. What hooks need is looked up before they are put in: those
whose part is gone stay out, and a blindspot says which it is.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fuelline.record.hooks.guest import Framework
from fuelline.schema.seams import find_missing, find_part

__all__ = ["DETAILS", "PARTS", "TORCH", "attribute_of", "find_unmet", "is_tracing"]

_DATALOADER = "torch.utils.data.dataloader"
_ITERATOR = f"{_DATALOADER}:_BaseDataLoaderIter"
_UTILS = "torch.utils.data._utils"

PARTS: Mapping[str, str] = {
    "BaseIterator": _ITERATOR,
    "DatasetKind": f"{_DATALOADER}:_DatasetKind",
    "NUM_YIELDED": f"{_ITERATOR}#_num_yielded",
    "MapFetcher": f"{_UTILS}.fetch:_MapDatasetFetcher",
    "IterableFetcher": f"{_UTILS}.fetch:_IterableDatasetFetcher",
    "StreamEnd": f"{_UTILS}.worker:_IterableDatasetStopIteration",
    "pinning": f"{_UTILS}.pin_memory",
    "DisableTorchFunction": "torch._C:DisableTorchFunction",
    "world": "torch.distributed.distributed_c10d:_world",
    "broadcast_coalesced": "torch.distributed:_broadcast_coalesced",
    "coalescing": "torch.distributed.distributed_c10d:_coalescing_manager",
    "find_group": "torch.distributed.distributed_c10d:_resolve_process_group",
    "name_group": "torch.distributed._functional_collectives:_resolve_group_name",
    "post_forward": "torch.nn.parallel.distributed:DistributedDataParallel._post_forward",
    "queue_callback": "torch.autograd:Variable._execution_engine.queue_callback",
    "skip_code": "torch._dynamo.eval_frame:skip_code",
}

NEEDED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("coalesced", "install"): ("coalescing", "DisableTorchFunction", "world"),
    ("collectives", "install"): ("DisableTorchFunction", "world"),
    ("sends", "install"): ("DisableTorchFunction", "world"),
    ("ddp", "install"): (
        *("DisableTorchFunction", "world"),
        *("broadcast_coalesced", "post_forward", "queue_callback"),
    ),
    ("device_clock", "install"): ("BaseIterator", "DisableTorchFunction"),
    ("dynamo", "install"): ("skip_code",),
    ("functional", "install"): ("DisableTorchFunction", "find_group", "name_group", "world"),
    ("loader", "install"): ("BaseIterator", "DatasetKind", "DisableTorchFunction", "NUM_YIELDED"),
    ("training", "install"): ("DisableTorchFunction",),
    ("transfer", "install_copies"): ("DisableTorchFunction",),
    ("transfer", "install_pinning"): ("DisableTorchFunction", "pinning"),
    ("transfer", "install_reads"): ("DisableTorchFunction",),
    ("worker", "install"): (
        "DisableTorchFunction",
        "IterableFetcher",
        "MapFetcher",
        "StreamEnd",
    ),
}
"""File and function to the parts without which its hooks are not put in."""

DETAILS: Mapping[str, str] = {
    "DATASET": f"{_ITERATOR}#_dataset",
    "DATASET_KIND": f"{_ITERATOR}#_dataset_kind",
    "COLLATE": f"{_ITERATOR}#_collate_fn",
    "NUM_WORKERS": f"{_ITERATOR}#_num_workers",
    "PIN_MEMORY": f"{_ITERATOR}#_pin_memory",
    "PREFETCH": f"{_DATALOADER}:_MultiProcessingDataLoaderIter#_prefetch_factor",
    "OUTSTANDING": f"{_DATALOADER}:_MultiProcessingDataLoaderIter#_tasks_outstanding",
    "WORKERS": f"{_DATALOADER}:_MultiProcessingDataLoaderIter#_workers",
    "CONTEXT": f"{_DATALOADER}:DataLoader#_DataLoader__multiprocessing_context",
}
"""What loaders and iterators keep in their dictionaries: read if it is there, else not known."""


def __getattr__(name: str) -> Any:
    if name in PARTS:
        return find_part(PARTS[name])
    if name in DETAILS:
        return attribute_of(DETAILS[name])
    raise AttributeError(name)


def find_unmet(file: str, function: str) -> str:
    """What torch lacks of the parts that these hooks need, in words; empty if nothing."""
    return find_missing(PARTS[name] for name in NEEDED.get((file, function), ()))


def attribute_of(path: str) -> str:
    """What a part is called by its owner."""
    return path.replace("#", ".").replace(":", ".").rpartition(".")[2]


def name_default_group() -> str:
    """Where the world keeps the group of all ranks.

    The public name is a property, whose frame costs as much as the rest of finding the group.
    """
    world = find_part(PARTS["world"])
    return "_default_pg" if hasattr(world, "_default_pg") else "default_pg"


_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep  # noqa: PTH100, PTH120

is_tracing: Callable[[], bool] = getattr(torch.compiler, "is_dynamo_compiling", lambda: False)
count_modes: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 1)
"""Function modes that are active; where it is not known, one may be."""
running_backward: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
"""Number of the backward pass for which the engine calls this thread, else -1."""

TORCH = Framework(
    package="torch",
    folder=_FOLDER,
    handlers=tuple(
        _FOLDER + file.replace("/", os.sep)
        for file in (
            "utils/data/_utils/signal_handling.py",  # a worker has died
            "distributed/elastic/multiprocessing/api.py",  # the launcher is to end
        )
    ),
    is_tracing=is_tracing,
)
