"""DCGM's fields in our names and units.

Meanings and units are those of dcgm_fields.h and of dcgm-exporter's default-counters.csv
(https://github.com/NVIDIA/dcgm-exporter/blob/main/etc/default-counters.csv). Our names are those
that recorded runs use (`schema.run.samples.DeviceSample`), so that both climb the same ladder.
"""

from __future__ import annotations

from dataclasses import dataclass

_MEBI = 1024 * 1024
_MEGA = 1e6


@dataclass(frozen=True)
class Field:
    """One field."""

    name: str
    """Ours, with the unit last."""
    factor: float = 1.0
    """Ours over theirs."""
    most: float | None = None
    """In our unit; more cannot be and is damage."""


FIELDS = {
    "DCGM_FI_DEV_GPU_UTIL": Field("util.gpu_frac", 0.01, 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": Field("util.memory_frac", 0.01, 1.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": Field("gpm.graphics_frac", most=1.0),
    "DCGM_FI_PROF_SM_ACTIVE": Field("gpm.sm_frac", most=1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": Field("gpm.occupancy_frac", most=1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": Field("gpm.tensor_frac", most=1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": Field("gpm.dram_frac", most=1.0),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": Field("gpm.fp64_frac", most=1.0),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": Field("gpm.fp32_frac", most=1.0),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": Field("gpm.fp16_frac", most=1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": Field("gpm.pcie_tx_bytes_per_s"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": Field("gpm.pcie_rx_bytes_per_s"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": Field("gpm.nvlink_tx_bytes_per_s"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": Field("gpm.nvlink_rx_bytes_per_s"),
    "DCGM_FI_DEV_SM_CLOCK": Field("clock.sm_hz", _MEGA),
    "DCGM_FI_DEV_MEM_CLOCK": Field("clock.memory_hz", _MEGA),
    "DCGM_FI_DEV_POWER_USAGE": Field("power.draw_watts"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": Field("power.cap_watts"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Field("energy.used_joules", 1e-3),
    "DCGM_FI_DEV_GPU_TEMP": Field("temperature.gpu_celsius"),
    "DCGM_FI_DEV_MEMORY_TEMP": Field("temperature.memory_celsius"),
    "DCGM_FI_DEV_FB_USED": Field("memory.used_bytes", _MEBI),
    "DCGM_FI_DEV_FB_FREE": Field("memory.free_bytes", _MEBI),
    "DCGM_FI_DEV_FB_RESERVED": Field("memory.reserved_bytes", _MEBI),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": Field("pcie.replay_count"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Field("ecc.uncorrected_count"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": Field("rows.failure"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": Field("rows.remapped_count"),
    "DCGM_FI_DEV_XID_ERRORS": Field("xid.last"),
}

BLANKS = ((0x7FFFFFF0, 0x7FFFFFFF), (0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFFF))
BLANK_FLOAT = 140737488355328.0
"""What DCGM gives for "not supported" and the like (dcgm_fields.h: DCGM_INT32_BLANK,
DCGM_INT64_BLANK and above, DCGM_FP64_BLANK and the few values above it)."""


def is_blank(value: float) -> bool:
    """Whether a value only says that there is none."""
    return (
        value != value  # noqa: PLR0124 - NaN
        or any(low <= value <= high + 1 for low, high in BLANKS)
        or BLANK_FLOAT <= value <= BLANK_FLOAT + 16
    )
