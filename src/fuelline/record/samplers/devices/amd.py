"""AMD's devices through `amdsmi`: the same rows as for NVIDIA, as far as the library has them.

`amdsmi` comes with ROCm or from PyPI; it is only imported where its library can be loaded, because
it prints and fails halfway without one. It has no counterpart of GPM: those rungs stay unknown.
"""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuelline.record.samplers.devices.device import (
    Device,
    FoundDevices,
    Rate,
    Trouble,
    UnavailableError,
    cannot_ask,
)
from fuelline.schema.run.samples import DeviceSeen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from fuelline.record.samplers.devices.device import Reader

    Pairs = Iterator[tuple[str, float]]

LIBRARIES = ("libamd_smi.so", "/opt/rocm/lib/libamd_smi.so")
_MHZ, _MIB, _WATT_PER_UW = 1e6, 1024 * 1024, 1e-6
_GENERATIONS = {2500: 1, 5000: 2, 8000: 3, 16000: 4, 32000: 5, 64000: 6}
"""MT/s of one lane to the generation of PCIe."""
_THERMAL = ("active_socket_thrm", "active_vr_thrm", "active_hbm_thrm", "active_prochot_thrm")


def find_devices(now_ns: int, first: int = 0) -> FoundDevices:
    """Everything that AMD SMI shows, numbered from `first`."""
    try:
        smi = load()
        if smi is None:
            return FoundDevices()
        handles = smi.amdsmi_get_processor_handles()
    except UnavailableError as error:
        return cannot_ask("AMD", error)
    return FoundDevices(
        tuple(_open(smi, f"gpu{first + i}", each, now_ns) for i, each in enumerate(handles))
    )


def load() -> ModuleType | None:
    """The bindings, initialised; None if nothing of AMD is here."""
    if not any(_can_load(library) for library in LIBRARIES):
        if not Path("/dev/kfd").exists():
            return None
        how = "install ROCm's amd-smi-lib; in a container pass --device /dev/kfd --device /dev/dri"
        raise UnavailableError("libamd_smi.so cannot be loaded", how)
    try:
        smi = importlib.import_module("amdsmi")
    except (ImportError, OSError, AttributeError, KeyError) as error:
        how = "pip install amdsmi, in the version of the ROCm on this host"
        raise UnavailableError(f"amdsmi cannot be imported ({error})", how) from None
    try:
        smi.amdsmi_init()
    except smi.AmdSmiException as error:
        raise UnavailableError(f"AMD SMI: {_words(error)}", "check that `amd-smi` works") from None
    return smi


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _words(error: Exception) -> str:
    return str(getattr(error, "err_info", error))


def judge(error: Exception) -> Trouble:
    """What an AmdSmiException means, by the name in its text."""
    if isinstance(error, AttributeError):
        return Trouble.UNSUPPORTED  # an older library
    words = _words(error)
    if "NO_PERM" in words:
        return Trouble.FORBIDDEN
    if "NOT_SUPPORTED" in words or "NOT_YET_IMPLEMENTED" in words:
        return Trouble.UNSUPPORTED
    return Trouble.LOST if "NOT_FOUND" in words or "NO_DRV" in words else Trouble.PASSING


def _open(smi: ModuleType, key: str, handle: Any, now_ns: int) -> Device:
    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(smi, name)(handle, *arguments)
        except (smi.AmdSmiException, AttributeError):  # an older library lacks some
            return {}

    caps, link = ask("amdsmi_get_power_cap_info"), ask("amdsmi_get_pcie_info")
    fixed = link.get("pcie_static", {})
    seen = DeviceSeen(
        now_ns,
        key,
        "AMD",
        ask("amdsmi_get_gpu_asic_info").get("market_name", "AMD device"),
        uuid=str(ask("amdsmi_get_gpu_device_uuid") or ""),
        memory_bytes=_scaled(ask("amdsmi_get_gpu_vram_usage").get("vram_total"), _MIB),
        power_cap_watts=_scaled(caps.get("power_cap"), _WATT_PER_UW),
        power_default_watts=_scaled(caps.get("default_power_cap"), _WATT_PER_UW),
        sm_clock_max_hz=_scaled(
            ask("amdsmi_get_clock_info", smi.AmdSmiClkType.GFX).get("max_clk"), _MHZ
        ),
        pcie_generation_max=_generation(fixed.get("max_pcie_speed")),
        pcie_width_max=_scaled(fixed.get("max_pcie_width"), 1),
        refusals={"gpm": "AMD SMI has no counterpart of GPM"},
    )
    readers = _Readers(smi, handle)
    errors = (smi.AmdSmiException, AttributeError)
    return Device(seen, readers.by_rate(), readers.list_processes, errors, judge)


class _Readers:
    def __init__(self, smi: ModuleType, handle: Any) -> None:
        self._smi = smi
        self._handle = handle

    def by_rate(self) -> dict[Rate, dict[str, Reader]]:
        return {
            Rate.FAST: {
                "utilisation": self.utilisation,
                "clocks": self.clocks,
                "power": self.power,
            },
            Rate.SECOND: {"memory": self.memory, "temperature": self.temperature},
            # Asking for violations makes the library wait a tenth of a second.
            Rate.SLOW: {
                "PCIe link": self.link,
                "error counters": self.counters,
                "throttling": self.throttling,
            },
        }

    def utilisation(self) -> Pairs:
        busy = self._smi.amdsmi_get_gpu_activity(self._handle)
        yield from _known("util.gpu_frac", busy.get("gfx_activity"), 0.01)
        yield from _known("util.memory_frac", busy.get("umc_activity"), 0.01)

    def clocks(self) -> Pairs:
        clock = self._smi.amdsmi_get_clock_info(self._handle, self._smi.AmdSmiClkType.GFX)
        yield from _known("clock.sm_hz", clock.get("clk"), _MHZ)

    def power(self) -> Pairs:
        power = self._smi.amdsmi_get_power_info(self._handle)
        yield from _known("power.draw_watts", power.get("average_socket_power"), 1)
        yield from _known("power.draw_watts", power.get("current_socket_power"), 1)

    def memory(self) -> Pairs:
        usage = self._smi.amdsmi_get_gpu_vram_usage(self._handle)
        yield from _known("memory.used_bytes", usage.get("vram_used"), _MIB)
        caps = self._smi.amdsmi_get_power_cap_info(self._handle)
        yield from _known("power.cap_watts", caps.get("power_cap"), _WATT_PER_UW)

    def temperature(self) -> Pairs:
        smi = self._smi
        degrees = smi.amdsmi_get_temp_metric(
            self._handle, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        )
        yield from _known("temperature.gpu_celsius", degrees, 1)

    def link(self) -> Pairs:
        metric = self._smi.amdsmi_get_pcie_info(self._handle).get("pcie_metric", {})
        yield from _known("pcie.generation", _generation(metric.get("pcie_speed")), 1)
        yield from _known("pcie.width", metric.get("pcie_width"), 1)
        yield from _known("pcie.replay_count", metric.get("pcie_replay_count"), 1)

    def counters(self) -> Pairs:
        errors = self._smi.amdsmi_get_gpu_total_ecc_count(self._handle)
        yield from _known("ecc.uncorrected_count", errors.get("uncorrectable_count"), 1)

    def throttling(self) -> Pairs:
        status = self._smi.amdsmi_get_violation_status(self._handle)
        known = [status[name] for name in _THERMAL if isinstance(status.get(name), int)]
        if known:
            yield "throttle.thermal_frac", float(any(known))
        yield from _known("throttle.power_frac", status.get("active_ppt_pwr"), 1)

    def list_processes(self) -> dict[int, int]:
        listed = self._smi.amdsmi_get_gpu_process_list(self._handle)
        return {each["pid"]: each.get("mem", -1) for each in listed}


def _known(name: str, value: Any, unit: float) -> Pairs:
    """Nothing for the words `N/A`, by which the bindings say that they do not know."""
    if isinstance(value, (int, float)):
        yield name, value * unit


def _scaled(value: Any, unit: float) -> Any:
    return value * unit if isinstance(value, (int, float)) else None


def _generation(speed: Any) -> int | None:
    """`32000` MT/s, in older versions `32` GT/s, -> 5."""
    if not isinstance(speed, (int, float)):
        return None
    return _GENERATIONS.get(round(speed if speed >= 1000 else speed * 1000))
