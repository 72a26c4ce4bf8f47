"""The hardware catalogue: what a named chip or link can do at most. No name, no number.

A chip that is not listed has no peak here; borrowing another chip's would make every share of it
wrong in silence. Names are those that the driver gives, whole and unchanged: a MIG slice or an
export variant has a name of its own and is not its big sister.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

TERA = 1e12

PEAK_FLOPS: Mapping[str, float] = {
    # Dense bf16 with tensor cores (fp16 where the chip has no bf16), from NVIDIA's and AMD's data
    # sheets; the figures with sparsity that some sheets print are twice as high.
    "NVIDIA A10": 125 * TERA,
    "NVIDIA A100-PCIE-40GB": 312 * TERA,
    "NVIDIA A100 80GB PCIe": 312 * TERA,
    "NVIDIA A100-SXM4-40GB": 312 * TERA,
    "NVIDIA A100-SXM4-80GB": 312 * TERA,
    "NVIDIA B200": 2250 * TERA,
    "NVIDIA H100 80GB HBM3": 989.4 * TERA,
    "NVIDIA H100 NVL": 835.5 * TERA,
    "NVIDIA H100 PCIe": 756 * TERA,
    "NVIDIA H200": 989.4 * TERA,
    "NVIDIA L4": 121 * TERA,
    "NVIDIA L40S": 362 * TERA,
    "Tesla T4": 65 * TERA,
    "Tesla V100-SXM2-16GB": 125 * TERA,
    "Tesla V100-SXM2-32GB": 125 * TERA,
    "AMD Instinct MI250X": 383 * TERA,
    "AMD Instinct MI300X": 1307.4 * TERA,
}

GIGA = 1e9

PEAK_BYTES_PER_S: Mapping[str, float] = {
    # Bandwidth of the chip's own memory, from the same data sheets.
    "NVIDIA A10": 600 * GIGA,
    "NVIDIA A100-PCIE-40GB": 1555 * GIGA,
    "NVIDIA A100 80GB PCIe": 1935 * GIGA,
    "NVIDIA A100-SXM4-40GB": 1555 * GIGA,
    "NVIDIA A100-SXM4-80GB": 2039 * GIGA,
    "NVIDIA B200": 8000 * GIGA,
    "NVIDIA H100 80GB HBM3": 3350 * GIGA,
    "NVIDIA H100 NVL": 3900 * GIGA,
    "NVIDIA H100 PCIe": 2000 * GIGA,
    "NVIDIA H200": 4800 * GIGA,
    "NVIDIA L4": 300 * GIGA,
    "NVIDIA L40S": 864 * GIGA,
    "Tesla T4": 320 * GIGA,
    "Tesla V100-SXM2-16GB": 900 * GIGA,
    "Tesla V100-SXM2-32GB": 900 * GIGA,
    "AMD Instinct MI250X": 3276.8 * GIGA,
    "AMD Instinct MI300X": 5300 * GIGA,
}

_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""One lane, one direction, after line coding (PCI-SIG base specifications 1.0 to 6.0)."""


def find_peak_flops(name: str) -> float | None:
    """Dense half-precision rate of exactly this chip; None if it is not in the catalogue."""
    return PEAK_FLOPS.get(name)


def find_peak_bytes(name: str) -> float | None:
    """Memory bandwidth of exactly this chip, in bytes/s; None if it is not in the catalogue."""
    return PEAK_BYTES_PER_S.get(name)


def link_bytes_per_s(generation: float, width: float) -> float | None:
    """What a PCIe link carries in one direction; None for a generation that is not known yet."""
    lane = _LANE_BYTES_PER_S.get(round(generation))
    return None if lane is None else lane * width
