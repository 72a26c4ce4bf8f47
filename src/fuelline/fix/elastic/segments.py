"""Tensors in shared memory that is used again: the worker's side takes, the trainer's side opens.

Only tensors that torch's own collate function makes are put into segments (memory), which writes
every element of them. Others go as before, since a dataset may keep what it has handed out.
"""

from __future__ import annotations

import sys
from multiprocessing import reduction
from typing import Any

import torch

from fuelline.fix.elastic import seam
from fuelline.fix.elastic.channel import find_parts, find_receiver
from fuelline.fix.elastic.memory import BytePool, SegmentTable

__all__ = ["SegmentPool", "SegmentTable", "allocate_collated_in", "open_part"]


class SegmentPool(BytePool):
    """A worker's segments; one thread uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.reducers[torch.UntypedStorage] = self._reduce

    def take(self, size: int) -> Any:
        """A storage of this size for a new tensor; None if there is no memory for it."""
        segment = self.find(size)
        if segment is None:
            return None
        storage = _as_storage(segment.lease(size))
        segment.address = storage.data_ptr()
        self._by_address[segment.address] = segment
        return storage

    def _reduce(self, storage: Any) -> Any:
        """Of a storage, for pickle: a segment's is opened on the other side."""
        is_here = storage.device.type == "cpu"
        segment = self._by_address.get(storage.data_ptr()) if is_here else None
        if segment is None or not segment.is_leased:
            return seam.reduce_storage(storage)
        self.send(segment)
        fd = reduction.DupFd(segment.fd) if segment.fd >= 0 else None
        return _open_storage, (segment.number, fd, storage.nbytes())


def _as_storage(view: memoryview) -> Any:
    return torch.frombuffer(view, dtype=torch.uint8).untyped_storage()


def _open_storage(number: int, fd: Any, size: int) -> Any:
    """Called by pickle in the trainer."""
    descriptor = None if fd is None else fd.detach()
    return _as_storage(find_receiver().open(number, descriptor, size))


def open_part(place: int) -> Any:
    """Likewise, for a storage that came beside its message."""
    return _as_storage(find_parts()[place])


def allocate_collated_in(pool: SegmentPool) -> None:
    """Have torch's collate function, in this process, make its tensors in the pool."""
    original = torch.UntypedStorage._new_shared
    collating = seam.collate_tensor.__code__

    def new_shared(cls: Any, size: int, *, device: Any = "cpu") -> Any:
        is_collated = sys._getframe(2).f_code is collating
        if is_collated and size and torch.device(device).type == "cpu":
            storage = pool.take(size)
            if storage is not None:
                return storage
        return original(size, device=device)

    torch.UntypedStorage._new_shared = classmethod(new_shared)
