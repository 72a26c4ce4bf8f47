"""Accelerators: what counts as the job's, the ladder, and what is missing rather than zero."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fuelline.schema.diagnosis.devices import RUNGS, DeviceFacts
from fuelline.schema.readings import Missing, Reading, Signal, value_of
from fuelline.schema.run.samples import DeviceSeen
from fuelline.schema.wire import Kind
from fuelline.signals.devices.devices import JobDevices, measure_devices
from tests.unit.builders import RUN, START_NS, Lane, make_timeline

S = 1_000_000_000
RUN_S = 20
ENDED = msgspec.structs.replace(RUN, ended_ns=START_NS + RUN_S * S)
H100 = "NVIDIA H100 80GB HBM3"


def seen(device: str = "gpu0", **facts: Any) -> DeviceSeen:
    known = {
        "memory_bytes": 80,
        "power_default_watts": 700.0,
        "sm_clock_max_hz": 2e9,
        "pcie_generation_max": 5,
        "pcie_width_max": 16,
        **facts,
    }
    vendor, name = known.pop("vendor", "NVIDIA"), known.pop("name", H100)
    return DeviceSeen(START_NS, device, vendor, name, **known)


def each_second(device: str = "gpu0", until_s: int = RUN_S, **values: float) -> list[Any]:
    """Rows `util.gpu_frac` for the argument `util__gpu_frac`, one a second."""
    return [
        (START_NS + second * S, device, name.replace("__", "."), value)
        for second in range(1, until_s)
        for name, value in values.items()
    ]


def fleet(
    *devices: DeviceSeen,
    rows: list[Any],
    processes: tuple[Any, ...] = (),
    window: tuple[int, int] | None = None,
    lanes: tuple[Lane, ...] = (),
) -> JobDevices:
    timeline = make_timeline(
        *lanes,
        run=ENDED,
        facts={"devices": devices},
        devices=rows,
        device_processes=[(START_NS + S, *row) for row in processes],
    )
    return measure_devices(timeline, window)


def measure_one(rows: list[Any], **facts: Any) -> DeviceFacts:
    (found,) = fleet(seen(**facts), rows=rows).devices
    return found


def reason(signal: Signal) -> str:
    assert isinstance(signal, Missing), signal
    return signal.reason


def rung(device: DeviceFacts, name: str) -> Signal:
    return next(each.share for each in device.rungs if each.rung == name)


def test_the_ladder_goes_from_allocated_to_useful() -> None:
    gpm = {"gpm__graphics_frac": 0.9, "gpm__sm_frac": 0.6, "gpm__tensor_frac": 0.2}
    found = measure_one(each_second(util__gpu_frac=0.95, job__frac=1.0, **gpm))
    assert tuple(found.ladder) == tuple(each.rung for each in found.rungs) == RUNGS
    assert list(found.ladder.values()) == pytest.approx([1, 1, 0.95, 0.9, 0.6, 0.2, None])
    assert found.seconds == RUN_S
    for each in found.rungs:
        if isinstance(each.share, Reading):
            each.share.check()


def test_a_rung_that_was_not_measured_says_why_and_how_to_see_it() -> None:
    found = measure_one(each_second(util__gpu_frac=0.95), refusals={"gpm": "no GPM here"})
    for name in ("kernels resident", "SMs active", "tensor cores active"):
        assert found.ladder[name] is None
        assert reason(rung(found, name)).startswith("no GPM here; `dcgmi dmon -e ")
    assert "not read" in reason(rung(found, "job alive"))
    other = measure_one(each_second(util__gpu_frac=0.95), vendor="AMD")
    assert reason(rung(other, "SMs active")).endswith("; the vendor's profiler shows it")


def test_mfu_needs_the_named_chips_own_peak() -> None:
    known = measure_one(each_second(util__gpu_frac=0.9))
    assert "989 TFLOP/s" in reason(rung(known, "MFU"))
    strange = measure_one(each_second(util__gpu_frac=0.9), name="NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    assert "no peak is known for 'NVIDIA H100 80GB HBM3 MIG 1g.10gb'" in reason(
        rung(strange, "MFU")
    )


def test_a_lost_device_does_nothing_for_the_rest_of_the_run() -> None:
    rows = [*each_second(until_s=10, util__gpu_frac=0.8), (START_NS + 10 * S, "gpu0", "lost", 1.0)]
    found = measure_one(rows)
    assert found.is_lost
    assert value_of(found.lost_share) == pytest.approx(0.5)
    assert found.ladder["reported utilisation"] == pytest.approx(0.4)


def test_a_device_that_was_not_lost_says_so_and_one_never_read_does_not() -> None:
    assert value_of(measure_one(each_second(util__gpu_frac=1.0)).lost_share) == 0
    assert "never read" in reason(measure_one([]).lost_share)


def test_devices_of_the_job_are_those_its_processes_were_on() -> None:
    devices = [seen("gpu0"), seen("gpu1"), seen("gpu2")]
    processes = (("gpu1", 7, 10, True), ("gpu1", 8, 10, True), ("gpu2", 9, 10, False))
    found = fleet(*devices, rows=[], processes=processes)
    assert [(each.device, each.pids) for each in found.devices] == [("gpu1", [7, 8])]
    assert found.unused == ["gpu0", "gpu2"]


def test_without_a_match_all_visible_devices_count() -> None:
    found = fleet(seen("gpu0"), seen("gpu1"), rows=[])
    assert [each.device for each in found.devices] == ["gpu0", "gpu1"]
    assert found.unused == []


def test_a_slice_stands_for_itself_and_borrows_its_cards_board() -> None:
    card, piece = seen("gpu0"), seen("gpu0.mig1", parent="gpu0", pcie_width_max=None)
    rows = [
        *each_second("gpu0", power__draw_watts=350.0, power__cap_watts=700.0),
        *each_second("gpu0.mig1", gpm__sm_frac=0.4),
    ]
    (found,) = fleet(card, piece, rows=rows).devices
    assert found.device == "gpu0.mig1"
    assert value_of(found.power_share) == pytest.approx(0.5)
    assert found.ladder["SMs active"] == pytest.approx(0.4)


def test_the_clock_while_throttled_is_measured_against_its_like() -> None:
    devices = [seen("gpu0"), seen("gpu1"), seen("gpu2"), seen("gpu3", name="NVIDIA L4")]
    rows = [
        *each_second("gpu0", throttle__thermal_frac=1.0, clock__throttled_hz=0.9e9),
        *each_second("gpu1", clock__free_hz=1.8e9),
        *each_second("gpu2", clock__free_hz=1.8e9),
        *each_second("gpu3", clock__free_hz=0.9e9),
    ]
    hot, free, *_ = fleet(*devices, rows=rows).devices
    assert value_of(hot.thermal_share) == 1
    assert value_of(hot.throttled_clock) == pytest.approx(0.5)
    assert isinstance(free.throttled_clock, Missing)


def test_alone_it_is_measured_against_its_own_free_clock_or_the_most_it_can() -> None:
    throttled = each_second(clock__throttled_hz=0.9e9)
    assert value_of(measure_one(throttled).throttled_clock) == pytest.approx(0.45)
    both = [*throttled, *each_second(clock__free_hz=1.2e9)]
    assert value_of(measure_one(both).throttled_clock) == pytest.approx(0.75)


def link_rows(generation: float, width: float) -> list[Any]:
    return each_second(pcie__generation=generation, pcie__width=width)


def test_a_narrow_link_is_told_in_words_and_as_a_share() -> None:
    traffic = {"gpm__pcie_rx_bytes_per_s": 8e9, "gpm__pcie_tx_bytes_per_s": 1e9}
    found = measure_one([*link_rows(5, 4), *each_second(util__gpu_frac=0.9, **traffic)])
    assert value_of(found.link_share) == pytest.approx(0.25)
    assert found.link_text == "PCIe 5 x4 of 5 x16"
    assert value_of(found.link_use) == pytest.approx(8e9 / (4 * 3.938e9))


def test_a_link_at_rest_says_nothing_about_the_slot() -> None:
    found = measure_one([*link_rows(1, 16), *each_second(util__gpu_frac=0.05)])
    assert "not read while the device was busy" in reason(found.link_share)
    assert found.link_text is None


def test_where_no_utilisation_is_read_the_best_link_counts() -> None:
    assert value_of(measure_one(link_rows(5, 8)).link_share) == pytest.approx(0.5)


def test_a_link_that_woke_up_once_is_whole() -> None:
    rows = [
        *link_rows(1, 16),
        *each_second(util__gpu_frac=0.9),
        (START_NS + 10 * S + 1, "gpu0", "pcie.generation", 5.0),
        (START_NS + 10 * S + 1, "gpu0", "pcie.width", 16.0),
    ]
    assert value_of(measure_one(rows).link_share) == 1


def test_a_link_of_an_unknown_generation_has_no_share() -> None:
    found = measure_one([*link_rows(9, 16), *each_second(util__gpu_frac=0.9)])
    assert "not known" in reason(found.link_share)


def test_counters_count_from_before_the_window() -> None:
    rows = [
        (START_NS + at * S, "gpu0", name, value)
        for name in ("nvlink.replay_count", "nvlink.recovery_count", "pcie.replay_count")
        for at, value in ((1, 5.0), (11, 7.0))
    ]
    window = (START_NS + 10 * S, START_NS + 20 * S)
    (found,) = fleet(seen(), rows=rows, window=window).devices
    assert value_of(found.nvlink_errors) == 4
    assert value_of(found.replays_per_min) == pytest.approx(12)


@pytest.mark.parametrize(("last", "grown"), [(5.0, 0), (7.0, 2)])
def test_errors_of_memory_are_counted_since_the_recording_began(last: float, grown: int) -> None:
    """The driver's totals are of the time since it was loaded: five may be weeks old."""
    rows = [
        (START_NS + at * S, "gpu0", "ecc.uncorrected_count", value)
        for at, value in ((1, 5.0), (15, last))
    ]
    (found,) = fleet(seen(), rows=rows).devices
    assert value_of(found.ecc_uncorrected) == grown


def test_a_counter_that_was_read_once_has_not_grown_as_far_as_anyone_knows() -> None:
    found = measure_one([(START_NS + S, "gpu0", "nvlink.replay_count", 5.0)])
    assert "not read twice" in reason(found.nvlink_errors)


def test_retired_pages_stand_in_where_rows_are_not_remapped() -> None:
    found = measure_one([(START_NS + S, "gpu0", "pages.pending", 1.0)])
    assert value_of(found.rows_pending) == 1


def test_shares_of_an_unknown_whole_are_missing() -> None:
    found = measure_one(each_second(memory__used_bytes=8.0), memory_bytes=None)
    assert "is not known" in reason(found.memory_share)


def test_mfu_is_what_the_steps_asked_for_over_the_peak_of_the_named_chip() -> None:
    lane = Lane(pid=7)
    for _ in range(40):
        lane.step()
    lane.add(Kind.FLOPS, 0, int(98.94e12))  # 40 steps in 20 s: a fifth of 989.4 TFLOP/s
    (found,) = fleet(seen(), rows=[], processes=(("gpu0", 7, 1, True),), lanes=(lane,)).devices
    assert found.ladder["MFU"] == pytest.approx(0.2)
