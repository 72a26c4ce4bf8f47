"""How large a batch is: samples and bytes, without running any code of the job.

Only tensors, arrays and plain containers are looked into; other objects count as unknown.
Overridden operators of tensor subclasses and active function modes are kept from noticing.
"""

from collections import UserDict
from collections.abc import Iterable
from typing import Any

import torch

from fuelline.record.hooks.torch import seam

__all__ = ["look", "measure"]

UNKNOWN = -1
LEAVES = 1024
"""With more leaves than this a batch is of unknown size, rather than of a wrong one."""

_Tensor = torch.Tensor
_count_modes = seam.count_modes
_DisableTorchFunction = seam.DisableTorchFunction


def look(batch: Any, batch_size: int | None) -> tuple[int, int]:
    """The same as `measure`, but no bytes if the batch is of the usual size at a glance."""
    if batch_size is not None and _is_usual(batch, batch_size):
        return batch_size, UNKNOWN
    return measure(batch, batch_size)


def _is_usual(batch: Any, batch_size: int) -> bool:
    """Whether the first tensor has the loader's batch size: then there is no more to ask."""
    kind = type(batch)
    first = batch[0] if (kind is list or kind is tuple) and batch else batch
    if type(first) is not _Tensor or _count_modes():
        return False
    try:
        shape = first.shape
    except RuntimeError:  # nested
        return False
    return len(shape) > 0 and shape[0] == batch_size


def measure(batch: Any, batch_size: int | None) -> tuple[int, int]:
    """Samples and bytes of a batch, -1 where unknown.

    Any length equal to the loader's `batch_size` is taken for the number of samples, because the
    first tensor may as well be one image of a list. Otherwise the first tensor's length is.
    """
    if _count_modes():
        with _DisableTorchFunction():
            return _measure_any(batch, batch_size)
    kind = type(batch)
    if kind is _Tensor:
        parts = (batch,)
    elif kind is list or kind is tuple:
        parts = batch
    else:
        return _measure_any(batch, batch_size)
    samples, size_bytes, count = UNKNOWN, 0, len(parts)
    if not 0 < count < LEAVES:
        return _measure_any(batch, batch_size)
    try:
        for part in parts:
            if type(part) is not _Tensor:
                return _measure_any(batch, batch_size)
            size_bytes += part.nbytes
            if samples == UNKNOWN:
                shape = part.shape
                samples = shape[0] if shape else 1
    except RuntimeError:  # a layout without a plain size: sparse, nested
        return _measure_any(batch, batch_size)
    if count == batch_size != samples:
        samples = count
    return samples, size_bytes


def _measure_any(batch: Any, batch_size: int | None) -> tuple[int, int]:
    tally = _BatchSize(batch_size)
    tally.visit(batch)
    if tally.leaves >= LEAVES or tally.is_odd or not tally.is_seen:
        return tally.samples, UNKNOWN
    return tally.samples, tally.size_bytes


class _BatchSize:
    __slots__ = ("batch_size", "is_odd", "is_seen", "leaves", "samples", "size_bytes")

    def __init__(self, batch_size: int | None) -> None:
        self.batch_size = batch_size
        self.samples = UNKNOWN
        self.size_bytes = 0
        self.leaves = 0
        self.is_seen = False
        self.is_odd = False

    def visit(self, item: Any) -> None:
        kind = type(item)
        if kind is _Tensor:
            self._add_array(item)
        elif isinstance(item, dict):
            self._visit_all(dict.values(item))
        elif isinstance(item, list):
            self._add_length(list.__len__(item))
            self._visit_all(list.__iter__(item))
        elif isinstance(item, tuple):
            self._add_length(tuple.__len__(item))
            self._visit_all(tuple.__iter__(item))
        else:
            self._visit_other(item, kind)

    def _visit_all(self, items: Iterable[Any]) -> None:
        for item in items:
            self.leaves += 1
            if self.leaves >= LEAVES:
                return
            self.visit(item)

    def _visit_other(self, item: Any, kind: type) -> None:
        if isinstance(item, _Tensor):
            with _DisableTorchFunction():
                self._add_array(item)
        elif kind.__name__ == "ndarray" and kind.__module__ == "numpy":
            self._add_array(item)
        elif kind in {bytes, bytearray, str}:
            self.is_seen = True
            self.size_bytes += len(item)
        elif isinstance(item, UserDict):
            self.visit(vars(item).get("data"))

    def _add_array(self, array: Any) -> None:
        try:
            length = array.shape[0] if array.ndim else 1
            self.size_bytes += array.nbytes
        except (RuntimeError, NotImplementedError):
            self.is_odd = True
            return
        self.is_seen = True
        if self.samples == UNKNOWN or length == self.batch_size:
            self.samples = length

    def _add_length(self, length: int) -> None:
        if length == self.batch_size:
            self.samples = length
