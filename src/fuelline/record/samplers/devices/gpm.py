"""GPM: how full an NVIDIA chip really was between two samples, for a whole device or a MIG slice.

The driver gives the difference of two samples that must lie more than 100 ms apart; each sample is
the end of one stretch and the start of the next, so that no time is left out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

_LEAST_NS = 110_000_000
_PERCENT, _MIB = 0.01, 1024 * 1024
METRICS = (
    ("gpm.graphics_frac", "NVML_GPM_METRIC_GRAPHICS_UTIL", _PERCENT),
    ("gpm.sm_frac", "NVML_GPM_METRIC_SM_UTIL", _PERCENT),
    ("gpm.occupancy_frac", "NVML_GPM_METRIC_SM_OCCUPANCY", _PERCENT),
    ("gpm.tensor_frac", "NVML_GPM_METRIC_ANY_TENSOR_UTIL", _PERCENT),
    ("gpm.dram_frac", "NVML_GPM_METRIC_DRAM_BW_UTIL", _PERCENT),
    ("gpm.pcie_rx_bytes_per_s", "NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MIB),
    ("gpm.pcie_tx_bytes_per_s", "NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MIB),
    ("gpm.nvlink_rx_bytes_per_s", "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", _MIB),
    ("gpm.nvlink_tx_bytes_per_s", "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", _MIB),
)


class Gpm:
    """Reads the metrics of one device or slice; the first reading gives none."""

    def __init__(self, nvml: ModuleType, take: Callable[[Any], Any]) -> None:
        self._nvml = nvml
        self._take = take
        self._request = nvml.c_nvmlGpmMetricsGet_t()  # 20 kB: made once
        self._request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(METRICS)
        for metric, (_, constant, _) in zip(self._request.metrics, METRICS, strict=False):
            metric.metricId = getattr(nvml, constant)
        self._last, self._next = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._taken_ns: int | None = None

    def read(self) -> Iterator[tuple[str, float]]:
        """Averages since the last reading."""
        now_ns = time.monotonic_ns()
        if self._taken_ns is not None and now_ns - self._taken_ns < _LEAST_NS:
            return
        self._take(self._next)
        is_first, self._taken_ns = self._taken_ns is None, now_ns
        self._last, self._next = self._next, self._last
        if is_first:
            return
        self._request.sample1, self._request.sample2 = self._next, self._last
        self._nvml.nvmlGpmMetricsGet(self._request)
        for metric, (name, _, unit) in zip(self._request.metrics, METRICS, strict=False):
            if metric.nvmlReturn == self._nvml.NVML_SUCCESS:
                yield name, metric.value * unit
