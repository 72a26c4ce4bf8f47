"""All that the elastic loader uses of torch without a promise that it stays.

It is torch's own iterator with methods replaced, so it needs more of it than anyone else. All of it
is looked up before the first loader is served; if anything is gone, loaders are left alone and the
report says what it is (entry).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuelline.schema.seams import find_part

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ATTRIBUTES", "PARTS", "list_paths", "replace_worker_info"]

_DATALOADER = "torch.utils.data.dataloader"
_UTILS = "torch.utils.data._utils"

PARTS: Mapping[str, str] = {
    "DatasetKind": f"{_DATALOADER}:_DatasetKind",
    "EndlessSampler": f"{_DATALOADER}:_InfiniteConstantSampler",
    "ExceptionWrapper": "torch._utils:ExceptionWrapper",
    "IterDataPipe": f"{_DATALOADER}:IterDataPipe",
    "MainIterator": f"{_DATALOADER}:_SingleProcessDataLoaderIter",
    "MapDataPipe": f"{_DATALOADER}:MapDataPipe",
    "ResumeIteration": f"{_UTILS}.worker:_ResumeIteration",
    "WorkersIterator": f"{_DATALOADER}:_MultiProcessingDataLoaderIter",
    "collate_tensor": f"{_UTILS}.collate:collate_tensor_fn",
    "check_workers": f"{_UTILS}.signal_handling:_error_if_any_worker_fails",
    "forget_workers": f"{_UTILS}.signal_handling:_remove_worker_pids",
    "note_workers": f"{_UTILS}.signal_handling:_set_worker_pids",
    "reduce_storage": "torch.multiprocessing.reductions:reduce_storage",
    "pin_memory": f"{_UTILS}.pin_memory:pin_memory",
    "worker": f"{_UTILS}.worker",
}
"""`seam.NAME` is the part of that name."""

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    f"{_DATALOADER}:DataLoader.": ("_get_iterator", "_index_sampler"),
    f"{_DATALOADER}:DataLoader#": ("_DataLoader__multiprocessing_context", "_dataset_kind"),
    f"{_DATALOADER}:_BaseDataLoaderIter.": ("_next_index",),
    f"{_DATALOADER}:_BaseDataLoaderIter#": (
        *("_num_workers", "_num_yielded"),
        *("_pin_memory", "_pin_memory_device"),
    ),
    f"{_DATALOADER}:_SingleProcessDataLoaderIter.": ("_next_data",),
    f"{_DATALOADER}:_SingleProcessDataLoaderIter#": ("_dataset_fetcher",),
    f"{_DATALOADER}:_MultiProcessingDataLoaderIter.": (
        *("_get_data", "_next_data", "_reset", "_shutdown_workers", "_try_put_index"),
    ),
    f"{_DATALOADER}:_MultiProcessingDataLoaderIter#": (
        *("_in_order", "_index_queues", "_send_idx", "_shutdown", "_task_info"),
        *("_tasks_outstanding", "_worker_pids_set", "_workers", "_workers_num_tasks"),
        "_workers_status",
    ),
    "torch:UntypedStorage.": ("_new_shared",),
    f"{_UTILS}.worker:": ("_worker_info",),
    f"{_UTILS}.worker:_worker_loop#": ("data_queue", "index_queue", "init_fn", "worker_id"),
}
"""Owner to what is used of it: methods, attributes of its objects, parameters."""


def __getattr__(name: str) -> Any:
    if name in PARTS:
        return find_part(PARTS[name])
    raise AttributeError(name)


def replace_worker_info(info: Any) -> None:
    """What `get_worker_info` answers in this worker from now on."""
    find_part(PARTS["worker"])._worker_info = info


def list_paths() -> list[str]:
    """Everything of the above, as `find_missing` takes it."""
    attributes = [owner + name for owner, names in ATTRIBUTES.items() for name in names]
    return [*PARTS.values(), *attributes]
