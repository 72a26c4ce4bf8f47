"""How large a batch is: the first dimension of its first array or tensor."""

from typing import Any

__all__ = ["count_samples"]


def count_samples(batch: Any) -> int:
    """Length of the first tensor's first dimension; -1 if it has none."""
    while isinstance(batch, (tuple, list, dict)) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) and shape[0] is not None else -1
