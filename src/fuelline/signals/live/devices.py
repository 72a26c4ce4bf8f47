"""The accelerators as they were last read; those that the job is on, if that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.live import DeviceRow
from fuelline.signals.live.window import WINDOW_NS

if TYPE_CHECKING:
    from fuelline.schema.run.samples import DeviceSample, DeviceSeen

_THROTTLES = ("throttle.power_frac", "throttle.thermal_frac", "throttle.hardware_frac")


class LiveDevices:
    """The last value of each reading of each device."""

    def __init__(self) -> None:
        self._seen: dict[str, DeviceSeen] = {}
        self._values: dict[str, dict[str, tuple[int, float]]] = {}
        self._newest_ns = 0

    def add(self, seen: DeviceSeen) -> None:
        """A device was found, or found again."""
        self._seen[seen.device] = seen

    def add_sample(self, sample: DeviceSample) -> None:
        """A device was read; what was read before we came arrives late."""
        self._newest_ns = max(self._newest_ns, sample.at_ns)
        known = self._values.setdefault(sample.device, {})
        for name, value in sample.values.items():
            known[name] = max(known.get(name, (0, 0.0)), (sample.at_ns, value))

    def rows(self) -> list[DeviceRow]:
        """The devices as they are shown."""
        ours = [device for device in self._seen if self._last(device, "job.frac")]
        return [self._row(device) for device in sorted(ours or self._seen)]

    def _row(self, device: str) -> DeviceRow:
        throttles = [self._fresh(device, name) for name in _THROTTLES]
        return DeviceRow(
            device=device,
            name=self._seen[device].name,
            is_lost=bool(self._last(device, "lost")),
            reported_frac=self._fresh(device, "util.gpu_frac"),
            sm_frac=self._fresh(device, "gpm.sm_frac"),
            throttled_frac=max((each for each in throttles if each is not None), default=None),
            watts=self._fresh(device, "power.draw_watts"),
            memory_bytes=self._last(device, "memory.used_bytes"),
        )

    def _last(self, device: str, name: str) -> float | None:
        found = self._values.get(device, {}).get(name)
        return None if found is None else found[1]

    def _fresh(self, device: str, name: str) -> float | None:
        """A value of the last seconds; an older one says nothing about now."""
        found = self._values.get(device, {}).get(name)
        return None if found is None or found[0] < self._newest_ns - WINDOW_NS else found[1]
