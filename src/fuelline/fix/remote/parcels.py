"""A batch as bytes: its pickle, and beside it the memory of its tensors; and its fingerprint.

Runs in workers, on this host and on others. Storages of some size are parts of their own, which
are received into shared memory without being copied; small ones are in the pickle itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch

from fuelline.fix.elastic import seam
from fuelline.fix.elastic.channel import MOST_PARTS
from fuelline.fix.elastic.segments import open_part

__all__ = ["Delivered", "find_fingerprint", "pack", "pack_small"]

LEAST_PART_BYTES = 4096
"""A segment has whole pages."""


class Delivered(NamedTuple):
    """A worker's message, and what it has done since the last."""

    message: Any
    busy_ns: int
    cpu_ns: int
    is_varying: bool


def pack(message: Any) -> tuple[memoryview, list[memoryview]]:
    """Pickle and parts; these are valid as long as the message lives."""
    parts: list[memoryview] = []

    def reduce(storage: Any) -> Any:
        if storage.device.type != "cpu":
            return seam.reduce_storage(storage)
        size = storage.nbytes()
        if size < LEAST_PART_BYTES or len(parts) >= MOST_PARTS:
            return _rebuild, (bytes(_view(storage)),)
        parts.append(_view(storage))
        return open_part, (len(parts) - 1,)

    return _dump(message, reduce), parts


def pack_small(message: Any) -> memoryview:
    """The pickle alone: what goes to a worker is indices, whatever the sampler makes them of."""
    return _dump(message, lambda storage: (_rebuild, (bytes(_view(storage)),)))


def _dump(message: Any, reduce: Any) -> memoryview:
    content = io.BytesIO()
    pickler = ForkingPickler(content)
    pickler.dispatch_table[torch.UntypedStorage] = reduce
    pickler.dump(message)
    return content.getbuffer()


def _view(storage: Any) -> memoryview:
    if not storage.nbytes():
        return memoryview(b"")
    memory = (ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())
    memory.owner = storage
    return memoryview(memory).cast("B")


def _rebuild(content: bytes) -> Any:
    if not content:
        return torch.UntypedStorage(0)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).untyped_storage()


def find_fingerprint(batch: Any) -> str:
    """Of all that is in it, to the bit; the same wherever it was made."""
    seen = hashlib.sha256()
    _feed(seen, batch)
    return seen.hexdigest()


def _feed(seen: Any, thing: Any) -> None:
    kind = type(thing)
    seen.update(f"{kind.__module__}.{kind.__qualname__}(".encode())
    if isinstance(thing, torch.Tensor):
        _feed_tensor(seen, thing)
    elif (
        kind is sys.modules.get("numpy", torch).__dict__.get("ndarray")
        and not thing.dtype.hasobject
    ):
        seen.update(repr((thing.dtype, thing.shape)).encode())
        seen.update(thing.tobytes())
    elif isinstance(thing, dict):
        for name, each in thing.items():
            _feed(seen, name)
            _feed(seen, each)
    elif isinstance(thing, (list, tuple)):
        for each in thing:
            _feed(seen, each)
    elif isinstance(thing, (str, bytes, int, float, complex, type(None))):
        seen.update(repr(thing).encode("utf-8", "surrogatepass"))
    elif isinstance(thing, type):
        seen.update(f"{thing.__module__}.{thing.__qualname__}".encode())
    elif hasattr(thing, "__dict__"):
        _feed(seen, vars(thing))
    else:
        seen.update(pickle.dumps(thing))
    seen.update(b")")


def _feed_tensor(seen: Any, tensor: Any) -> None:
    own = (tensor.dtype, tensor.layout, tuple(tensor.shape), tensor.requires_grad)
    seen.update(repr(own).encode())
    plain = tensor.detach()
    plain = plain if plain.layout == torch.strided else plain.to_dense()
    packed = plain.clone(memory_format=torch.contiguous_format)
    seen.update(_view(packed.untyped_storage()))
