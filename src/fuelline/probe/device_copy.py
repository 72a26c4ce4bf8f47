"""How fast bytes get from host memory to an accelerator, if torch and one are here."""

from __future__ import annotations

from time import perf_counter
from typing import Any

__all__ = ["measure_copies"]

COPY_BYTES = 256 << 20
REPEATS = 10


def measure_copies() -> dict[str, float] | str:
    """Bytes a second from pageable and pinned memory; a sentence if there is nothing to measure."""
    try:
        import torch  # noqa: PLC0415 - takes seconds; only a probe needs it
    except ImportError:
        return "PyTorch is not installed in this environment"
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA or ROCm device here"
    plain = torch.empty(COPY_BYTES, dtype=torch.uint8)
    return {
        "pageable": _rate(torch, plain),
        "pinned": _rate(torch, plain.pin_memory()),
    }


def _rate(torch: Any, source: Any) -> float:
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target.copy_(source)
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(REPEATS):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return float(REPEATS * COPY_BYTES / (perf_counter() - start))
