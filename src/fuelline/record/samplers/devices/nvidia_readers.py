"""What is read of one NVIDIA device, one method a kind of reading, each a few NVML calls.

Fractions are 0 to 1, clocks hertz, power watts. `throttle.*_frac` is 1 while the driver names that
reason; averaged over a second it is the share of samples. `clock.throttled_hz` is given only then,
so that its mean is the clock while throttled, and `clock.free_hz` only while busy and not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuelline.record.samplers.devices.device import Rate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from fuelline.record.samplers.devices.device import Reader

    Pairs = Iterator[tuple[str, float]]

_MHZ = 1_000_000
_WATT_PER_MW = 1e-3
SW_POWER_CAP, HW_SLOWDOWN = 0x4, 0x8
SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x20, 0x40, 0x80
"""Bits of nvmlClocksEventReasons (nvml.h). HW_SLOWDOWN comes with each of the two below it."""
_FIELDS = {
    "NVML_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc.uncorrected_count",
    "NVML_FI_DEV_REMAPPED_UNC": "rows.remapped_count",
    "NVML_FI_DEV_REMAPPED_PENDING": "rows.pending",
    "NVML_FI_DEV_REMAPPED_FAILURE": "rows.failure",
    "NVML_FI_DEV_RETIRED_PENDING": "pages.pending",
    "NVML_FI_DEV_PCIE_REPLAY_COUNTER": "pcie.replay_count",
    "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "nvlink.crc_count",
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "nvlink.replay_count",
    "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "nvlink.recovery_count",
}
_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of the value's union, by nvmlValueType_t."""


class Readers:
    """The readers of one device, bound to its handle."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._fields = {
            number: short
            for name, short in _FIELDS.items()
            if (number := getattr(nvml, name)) is not None
        }
        self._reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        self._clock_hz = 0
        self._is_busy = False

    def by_rate(self) -> dict[Rate, dict[str, Reader]]:
        """All of them; within a rate in the order in which they must be called."""
        return {
            Rate.FAST: {
                "utilisation": self.utilisation,
                "clocks": self.clocks,
                "throttling": self.throttling,
                "power": self.power,
            },
            Rate.SECOND: {
                "memory": self.memory,
                "power cap": self.power_cap,
                "temperature": self.temperature,
            },
            Rate.SLOW: {
                "PCIe link": self.link,
                "error counters": self.counters,
                "violation times": self.violations,
            },
        }

    def utilisation(self) -> Pairs:
        """Some kernel was resident; some memory was read or written."""
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        self._is_busy = rates.gpu > 0
        yield "util.gpu_frac", rates.gpu / 100
        yield "util.memory_frac", rates.memory / 100

    def clocks(self) -> Pairs:
        """Of the SMs, now."""
        nvml = self._nvml
        self._clock_hz = nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM) * _MHZ
        yield "clock.sm_hz", self._clock_hz

    def throttling(self) -> Pairs:
        """Why the clock is not higher."""
        reasons = self._read_reasons()
        thermal = bool(reasons & (SW_THERMAL | HW_THERMAL))
        power = bool(reasons & SW_POWER_CAP)
        hardware = bool(reasons & (HW_SLOWDOWN | POWER_BRAKE)) and not reasons & HW_THERMAL
        yield "throttle.thermal_frac", thermal
        yield "throttle.power_frac", power
        yield "throttle.hardware_frac", hardware
        if thermal or power or hardware:
            yield "clock.throttled_hz", self._clock_hz
        elif self._is_busy:
            yield "clock.free_hz", self._clock_hz

    def _read_reasons(self) -> int:
        """The same bits under their old name, where driver or bindings are older than 535."""
        nvml = self._nvml
        if self._reasons is not None:
            try:
                return int(self._reasons(self._handle))
            except nvml.NVMLError_FunctionNotFound:
                self._reasons = None
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def power(self) -> Pairs:
        """Of the whole board."""
        yield "power.draw_watts", self._nvml.nvmlDeviceGetPowerUsage(self._handle) * _WATT_PER_MW

    def power_cap(self) -> Pairs:
        """What it may draw; others may change it while the job runs."""
        cap_mw = self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle)
        yield "power.cap_watts", cap_mw * _WATT_PER_MW

    def memory(self) -> Pairs:
        """In use by anyone."""
        yield "memory.used_bytes", self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used

    def temperature(self) -> Pairs:
        """Of the GPU itself, in degrees Celsius."""
        nvml = self._nvml
        sensor = nvml.NVML_TEMPERATURE_GPU
        yield "temperature.gpu_celsius", nvml.nvmlDeviceGetTemperature(self._handle, sensor)

    def link(self) -> Pairs:
        """The PCIe link as it is trained now; an idle device may lower the generation."""
        nvml = self._nvml
        yield "pcie.generation", nvml.nvmlDeviceGetCurrPcieLinkGeneration(self._handle)
        yield "pcie.width", nvml.nvmlDeviceGetCurrPcieLinkWidth(self._handle)

    def counters(self) -> Pairs:
        """Errors since the driver was loaded; those that the chip does not count are left out."""
        nvml = self._nvml
        values = nvml.nvmlDeviceGetFieldValues(self._handle, list(self._fields))
        for field in values:
            if field.nvmlReturn == nvml.NVML_SUCCESS and field.valueType < len(_VALUE_FIELDS):
                value = getattr(field.value, _VALUE_FIELDS[field.valueType])
                yield self._fields[field.fieldId], value

    def violations(self) -> Pairs:
        """How long the clock was held down, since the driver was loaded."""
        nvml = self._nvml
        for name, policy in (
            ("throttle.power_ns", nvml.NVML_PERF_POLICY_POWER),
            ("throttle.thermal_ns", nvml.NVML_PERF_POLICY_THERMAL),
        ):
            yield name, nvml.nvmlDeviceGetViolationStatus(self._handle, policy).violationTime


def list_processes(nvml: ModuleType, handle: Any) -> dict[int, int]:
    """Pids with a compute context, to the memory they hold there."""
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except nvml.NVMLError_FunctionNotFound:  # drivers before 510
        processes = nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return {
        each.pid: -1 if each.usedGpuMemory is None else each.usedGpuMemory for each in processes
    }
