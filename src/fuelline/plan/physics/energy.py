"""Power: a chip at work draws an idle part, a part for its memory and a part for its math.

P / TDP = 0.30 + 0.40 * bandwidth used + 1.65 * math used, at most 1. The three constants are read
off six measured points (Llama-3-8B on A100 and H100, batch 1 to 64, arXiv 2411.00136): energy a
token falls with the batch twenty-fold while power rises by a quarter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.schema.plan.chips import Chip

IDLE_SHARE = 0.30
MEMORY_SHARE = 0.40
MATH_SHARE = 1.65


def power_w(chip: Chip, bytes_per_s: float, flops_per_s: float) -> float | None:
    """Of one chip that moves and computes this much; None if its limit is not known."""
    peak, bandwidth = chip.peak_flops("bf16"), chip.mem_bytes_per_s
    if chip.tdp_w is None or peak is None or bandwidth is None:
        return None
    share = IDLE_SHARE + MEMORY_SHARE * bytes_per_s / bandwidth + MATH_SHARE * flops_per_s / peak
    return chip.tdp_w * min(share, 1.0)
