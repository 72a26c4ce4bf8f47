"""The machine in the last seconds: growth of the observer's cumulative counters, per second.

Also here: the accelerators as they were last read; those that the job is on, if that is known.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.live import DeviceRow, HostLine
from fuelline.signals.live.window import WINDOW_NS

if TYPE_CHECKING:
    from fuelline.schema.run.samples import DeviceSample, DeviceSeen, HostSample, Limits


_SOURCES = ("job", "others", "psi", "disk", "net")
_LOOPBACK = "net.lo."
SLOWEST_READING_NS = 2 * 10**9
"""Every source is read at least this often; a reading older than that has not changed since."""


class LiveHost:
    """Counters of which only changes are told: absent means unchanged."""

    def __init__(self) -> None:
        self._readings: dict[str, list[tuple[int, float]]] = {}
        self._read_ns: dict[str, int] = {}
        """When any counter of a source was last told."""
        self._limits: Limits | None = None

    def add_limits(self, limits: Limits) -> None:
        """What the job may use has changed."""
        self._limits = limits

    def add(self, sample: HostSample) -> None:
        """Counters were read."""
        for name, value in sample.values.items():
            source = name.partition(".")[0]
            if source not in _SOURCES or name.startswith(_LOOPBACK):
                continue
            self._read_ns[source] = max(sample.at_ns, self._read_ns.get(source, 0))
            readings = self._readings.setdefault(name, [])
            insort(readings, (sample.at_ns, value))  # what was told before we came arrives late
            while len(readings) > 1 and readings[1][0] <= self._read_ns[source] - WINDOW_NS:
                del readings[0]

    def line(self) -> HostLine:
        """The machine as it is shown."""
        limits = self._limits
        return HostLine(
            cores_used=self._rate("job.cpu_ns", 1e-9),
            cores_allowed=None
            if limits is None
            else min(float(limits.cpus_allowed), limits.quota_cores or float("inf")),
            cores_others=self._rate("others.cpu_ns", 1e-9),
            cpu_pressure_frac=self._rate("psi.cpu.some_us", 1e-6),
            io_pressure_frac=self._rate("psi.io.some_us", 1e-6),
            memory_pressure_frac=self._rate("psi.memory.some_us", 1e-6),
            disk_read_bytes_per_s=self._sum("disk.", ".read_bytes"),
            disk_write_bytes_per_s=self._sum("disk.", ".write_bytes"),
            net_in_bytes_per_s=self._sum("net.", ".rx_bytes"),
            net_out_bytes_per_s=self._sum("net.", ".tx_bytes"),
        )

    def _sum(self, begin: str, end: str) -> float | None:
        rates = [
            self._rate(name)
            for name in self._readings
            if name.startswith(begin) and name.endswith(end)
        ]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    def _rate(self, name: str, unit: float = 1.0) -> float | None:
        """Growth per second; None if its source was not read twice."""
        readings = self._readings.get(name)
        if not readings:
            return None
        now_ns = self._read_ns[name.partition(".")[0]]
        span_ns = now_ns - max(readings[0][0], now_ns - WINDOW_NS - SLOWEST_READING_NS)
        if span_ns <= 0:
            return None
        return max(0.0, readings[-1][1] - readings[0][1]) * unit / (span_ns / 1e9)


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
