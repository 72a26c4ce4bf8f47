"""NVIDIA's devices through `nvidia-ml-py` (module `pynvml`), MIG slices included.

What the numbers mean: `util.gpu_frac` only says that some kernel was resident in the driver's own
sampling period; how full the chip was is in the GPM metrics, which Hopper and later have. PCIe
generation falls while a device is idle, so that it must be read beside the utilisation.

Also here: GPM: how full an NVIDIA chip really was between two samples, for a whole device or a MIG
slice.

The driver gives the difference of two samples that must lie more than 100 ms apart; each sample is
the end of one stretch and the start of the next, so that no time is left out.
"""

from __future__ import annotations

import ctypes
import importlib
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fuelline.record.samplers.devices.device import (
    Device,
    FoundDevices,
    Rate,
    Trouble,
    UnavailableError,
    cannot_ask,
)
from fuelline.record.samplers.devices.nvidia_readers import Readers, list_processes
from fuelline.schema.run.samples import Blind, DeviceSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fuelline.record.samplers.devices.device import Reader


LIBRARY = "libnvidia-ml.so.1"
INSTALL_BINDING = "pip install 'fuelline[nvidia]'"
_MHZ = 1e6


def find_devices(now_ns: int) -> FoundDevices:
    """Everything that NVML shows; nothing and no complaint where there is no NVIDIA driver."""
    try:
        nvml = load()
        return FoundDevices() if nvml is None else _list_devices(nvml, now_ns)
    except UnavailableError as error:
        return cannot_ask("NVIDIA", error)


class Bindings(ModuleType):
    """`pynvml` of any age: a function that it lacks answers as a driver that lacks it."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        module = self._module
        if hasattr(module, name):
            return getattr(module, name)
        return self._refuse if name.startswith("nvml") else None

    def _refuse(self, *_: object) -> None:
        raise self._module.NVMLError(self._module.NVML_ERROR_FUNCTION_NOT_FOUND)


def load() -> ModuleType | None:
    """The bindings, initialised; None if nothing of NVIDIA is here."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        if not any(Path("/dev").glob("nvidia[0-9]*")):
            return None
        how = "install the driver's libraries; in a container pass --gpus all"
        raise UnavailableError(f"{LIBRARY} cannot be loaded ({error})", how) from None
    try:
        nvml = Bindings(importlib.import_module("pynvml"))
    except ImportError:
        raise UnavailableError("nvidia-ml-py is not installed", INSTALL_BINDING) from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        how = "check that `nvidia-smi` works for this user"
        raise UnavailableError(f"NVML: {error}", how) from None
    return nvml


def judge(nvml: ModuleType, error: Exception) -> Trouble:
    """What an NVMLError means."""
    code = getattr(error, "value", None)
    if code in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
        return Trouble.LOST
    if code == nvml.NVML_ERROR_NO_PERMISSION:
        return Trouble.FORBIDDEN
    absent = (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
    )
    return Trouble.UNSUPPORTED if code in absent else Trouble.PASSING


def _list_devices(nvml: ModuleType, now_ns: int) -> FoundDevices:
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        how = "check that `nvidia-smi -L` works"
        raise UnavailableError(f"NVML: {error}", how) from None
    found = FoundDevices()
    for index in range(count):
        found += _open_device(nvml, index, now_ns)
    return found


def _open_device(nvml: ModuleType, index: int, now_ns: int) -> FoundDevices:
    key = f"gpu{index}"
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        if judge(nvml, error) is Trouble.LOST:
            return FoundDevices((_lost_device(nvml, key, error, now_ns),))
        forbids = "anything about that accelerator"
        return FoundDevices(blinds=(Blind(key, f"NVML: {error}", forbids),))
    device = _whole_device(nvml, key, handle, now_ns)
    return FoundDevices((device, *_slices(nvml, device, handle, now_ns)))


def _lost_device(nvml: ModuleType, key: str, error: Exception, now_ns: int) -> Device:
    """A device that was lost before we came: its first reading says so."""

    def fail() -> Iterator[tuple[str, float]]:
        raise error
        yield  # a generator, as readers are

    readers: dict[Rate, dict[str, Reader]] = {rate: {"device": fail} for rate in Rate}
    seen = DeviceSeen(now_ns, key, "NVIDIA", "NVIDIA device")
    return Device(seen, readers, dict, nvml.NVMLError, partial(judge, nvml))


def _whole_device(nvml: ModuleType, key: str, handle: Any, now_ns: int) -> Device:
    ask = partial(_ask, nvml)
    readers = Readers(nvml, handle)
    seen = DeviceSeen(
        now_ns,
        key,
        "NVIDIA",
        ask(nvml.nvmlDeviceGetName, handle) or "NVIDIA device",
        uuid=ask(nvml.nvmlDeviceGetUUID, handle) or "",
        driver=ask(nvml.nvmlSystemGetDriverVersion) or "",
        memory_bytes=getattr(ask(nvml.nvmlDeviceGetMemoryInfo, handle), "total", None),
        power_cap_watts=_scaled(ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3),
        power_default_watts=_scaled(
            ask(nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle), 1e-3
        ),
        sm_clock_max_hz=_scaled(
            ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM), _MHZ
        ),
        pcie_generation_max=ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width_max=ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
    )
    by_rate = readers.by_rate()
    device = _device(nvml, seen, by_rate, handle)
    _add_gpm(nvml, device, handle, lambda sample: nvml.nvmlGpmSampleGet(handle, sample))
    return device


def _slices(nvml: ModuleType, whole: Device, handle: Any, now_ns: int) -> Iterator[Device]:
    """The MIG devices of a card: memory, processes and GPM are theirs, the rest is the card's."""
    mode = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if mode is None or not mode[0]:
        return
    for index in range(_ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        child = _ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        instance = None if child is None else _ask(nvml, nvml.nvmlDeviceGetGpuInstanceId, child)
        if child is None or instance is None:
            continue
        yield _slice(nvml, whole, (handle, child, instance), f"mig{index}", now_ns)


def _slice(
    nvml: ModuleType, whole: Device, handles: tuple[Any, Any, int], name: str, now_ns: int
) -> Device:
    handle, child, instance = handles
    seen = DeviceSeen(
        now_ns,
        f"{whole.seen.device}.{name}",
        "NVIDIA",
        _ask(nvml, nvml.nvmlDeviceGetName, child) or whole.seen.name,
        uuid=_ask(nvml, nvml.nvmlDeviceGetUUID, child) or "",
        driver=whole.seen.driver,
        parent=whole.seen.device,
        memory_bytes=getattr(_ask(nvml, nvml.nvmlDeviceGetMemoryInfo, child), "total", None),
        refusals={"utilisation": "the driver gives none for a MIG slice"},
    )
    by_rate: dict[Rate, dict[str, Reader]] = {rate: {} for rate in Rate}
    by_rate[Rate.SECOND]["memory"] = Readers(nvml, child).memory
    device = _device(nvml, seen, by_rate, child)
    _add_gpm(
        nvml, device, handle, lambda sample: nvml.nvmlGpmMigSampleGet(handle, instance, sample)
    )
    return device


def _device(
    nvml: ModuleType, seen: DeviceSeen, readers: dict[Rate, dict[str, Reader]], handle: Any
) -> Device:
    processes = partial(list_processes, nvml, handle)
    return Device(seen, readers, processes, nvml.NVMLError, partial(judge, nvml))


def _add_gpm(nvml: ModuleType, device: Device, handle: Any, take: Callable[[Any], Any]) -> None:
    try:
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            device.refuse("gpm", "this chip has no GPM; Hopper and later have it")
            return
        device.readers[Rate.SECOND]["gpm"] = Gpm(nvml, take).read
    except nvml.NVMLError as error:
        device.refuse("gpm", f"this driver has no GPM ({error})")


def _ask(nvml: ModuleType, function: Callable[..., Any], *arguments: Any) -> Any:
    """An answer, or None if there is none."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


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
