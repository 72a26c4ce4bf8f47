"""Accelerators as they were last read."""

from __future__ import annotations

from fuelline.schema.run.samples import DeviceSample, DeviceSeen
from fuelline.signals.live import LiveRun
from tests.unit.signals.live.growths import at, growth


def seen(device: str) -> DeviceSeen:
    return DeviceSeen(at(0), device, "nvidia", "NVIDIA H100 80GB HBM3")


def sample(device: str, second: int, **values: float) -> DeviceSample:
    return DeviceSample(
        at(second * 1000),
        device,
        {name.replace("__", "."): value for name, value in values.items()},
    )


def test_the_newest_reading_counts_whenever_it_arrives() -> None:
    rows = [
        seen("gpu0"),
        sample("gpu0", 20, util__gpu_frac=0.9, gpm__sm_frac=0.3, power__draw_watts=400),
        sample("gpu0", 3, util__gpu_frac=0.1, memory__used_bytes=5),
        sample("gpu0", 20, throttle__power_frac=0.2, throttle__thermal_frac=0.7),
    ]
    (row,) = LiveRun(growth(rows=rows)).snapshot(workers=False).devices
    assert (row.reported_frac, row.sm_frac, row.watts, row.memory_bytes) == (0.9, 0.3, 400, 5)
    assert row.throttled_frac == 0.7
    assert not row.is_lost


def test_a_reading_of_long_ago_says_nothing_about_now() -> None:
    rows = [seen("gpu0"), seen("gpu1"), sample("gpu0", 1, util__gpu_frac=0.9, lost=1)]
    rows += [sample("gpu1", 60, util__gpu_frac=0.5)]
    lost, other = LiveRun(growth(rows=rows)).snapshot(workers=False).devices
    assert (lost.is_lost, lost.reported_frac, lost.throttled_frac) == (True, None, None)
    assert other.reported_frac == 0.5


def test_where_it_is_known_only_devices_of_the_job_are_shown() -> None:
    rows = [seen("gpu0"), seen("gpu1"), sample("gpu1", 1, job__frac=1), sample("gpu0", 1)]
    devices = LiveRun(growth(rows=rows)).snapshot(workers=False).devices
    assert [device.device for device in devices] == ["gpu1"]
