"""Devices of any vendor: what is dropped, what is lost, whose processes they are, and AMD's."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fuelline.record import device_capabilities
from fuelline.record.pace import FAILURES_TO_GIVE_UP, Task, run_guarded
from fuelline.record.samplers.devices import amd, nvidia
from fuelline.record.samplers.devices.device import (
    Device,
    FoundDevices,
    LostError,
    Rate,
    Trouble,
    UnavailableError,
)
from fuelline.record.samplers.devices.processes import Occupants
from fuelline.record.samplers.devices.sampler import Devices
from fuelline.schema.run.samples import Blind, DeviceProcess, DeviceSample, DeviceSeen

JOB = frozenset({7})


class DriverError(Exception):
    """Says by its first argument what it means."""


def failing(*troubles: Trouble | None) -> Callable[[], Iterator[tuple[str, float]]]:
    """A reader that meets one trouble after the other, None for none."""
    turns = iter(troubles)

    def read() -> Iterator[tuple[str, float]]:
        trouble = next(turns, None)
        if trouble is not None:
            raise DriverError(trouble)
        yield "value", 1.0

    return read


def make_device(
    key: str = "gpu0", processes: Callable[[], dict[int, int]] = dict, **readers: Any
) -> Device:
    by_rate: dict[Rate, dict[str, Any]] = {rate: {} for rate in Rate}
    by_rate[Rate.FAST] = readers
    judge = lambda error: error.args[0]  # noqa: E731
    return Device(DeviceSeen(1, key, "NVIDIA", "chip"), by_rate, processes, DriverError, judge)


def test_what_a_chip_does_not_have_is_dropped_and_remembered() -> None:
    device = make_device(a=failing(Trouble.UNSUPPORTED), b=failing())
    assert device.read(Rate.FAST) == {"value": 1.0}
    assert set(device.readers[Rate.FAST]) == {"b"}
    assert "UNSUPPORTED" in device.seen.refusals["a"]
    assert device.blinds == []


def test_what_is_forbidden_is_a_blind_row() -> None:
    device = make_device(a=failing(Trouble.FORBIDDEN))
    device.read(Rate.FAST)
    assert [blind.what for blind in device.blinds] == ["a of gpu0"]


def test_a_failure_may_pass_but_not_three_in_a_row() -> None:
    passing = Trouble.PASSING
    device = make_device(a=failing(passing, passing, None, passing, passing, passing))
    for _ in range(5):
        device.read(Rate.FAST)
    assert set(device.readers[Rate.FAST]) == {"a"}
    device.read(Rate.FAST)
    assert device.readers[Rate.FAST] == {}


def test_a_value_that_is_no_number_is_left_out() -> None:
    device = make_device(a=lambda: [("good", 1.0), ("bad", float("nan"))])
    assert device.read(Rate.FAST) == {"good": 1.0}


def test_a_lost_device_raises_from_every_question() -> None:
    def lost() -> dict[int, int]:
        raise DriverError(Trouble.LOST)

    device = make_device(processes=lost, a=failing(Trouble.LOST))
    with pytest.raises(LostError):
        device.read(Rate.FAST)
    with pytest.raises(LostError):
        device.find_processes()


def test_processes_that_may_not_be_listed_are_not_asked_for_again() -> None:
    asked = []

    def refuse() -> dict[int, int]:
        asked.append(1)
        raise DriverError(Trouble.FORBIDDEN)

    device = make_device(processes=refuse)
    assert device.find_processes() is None
    assert device.find_processes() is None
    assert len(asked) == 1


def run_rounds(*devices: Device, rounds: int = 2) -> list[Any]:
    sampler = Devices(lambda _: FoundDevices(devices))
    sampler.job_pids = JOB
    sampler.open(0)
    for number in range(1, rounds + 1):
        sampler.read_fast(number)
        sampler.read_fast(number)
        sampler.read_second(number)
        sampler.look_at_processes(number)
    sampler.finish(rounds + 1)
    return sampler.drain()


def test_quick_readings_become_means() -> None:
    values = iter([1.0, 2.0, 3.0, 4.0])
    device = make_device(a=lambda: [("value", next(values))])
    samples = [row for row in run_rounds(device) if isinstance(row, DeviceSample)]
    assert [row.values["value"] for row in samples if "value" in row.values] == [1.5, 3.5]


def test_a_device_lost_while_processes_are_listed_leaves_the_others() -> None:
    def lost() -> dict[int, int]:
        raise DriverError(Trouble.LOST)

    good, bad = make_device("gpu0", a=failing()), make_device("gpu1", lost, a=failing())
    rows = run_rounds(good, bad)
    assert DeviceSample(1, "gpu1", {"lost": 1.0}) in rows
    assert [row.what for row in rows if isinstance(row, Blind)] == ["gpu1 from that moment"]
    assert max(row.at_ns for row in rows if getattr(row, "device", "") == "gpu0") > 1


def test_the_thread_ends_by_itself_when_there_is_nothing_to_ask() -> None:
    sampler = Devices(lambda _: FoundDevices())
    sampler.start()
    sampler.stop()
    assert sampler.drain() == []


def test_a_search_that_fails_is_told_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: int) -> FoundDevices:
        raise RuntimeError("a surprise")

    sampler = Devices(fail)
    sampler.start()
    sampler._thread.join()
    (blind,) = sampler.drain()
    assert isinstance(blind, Blind)
    assert "accelerators" in blind.what
    assert "a surprise" in capsys.readouterr().err


def test_the_thread_asks_until_it_is_stopped() -> None:
    sampler = Devices(lambda _: FoundDevices((make_device(a=failing()),)))
    sampler.start()
    while not sampler.cpu_ns and sampler._thread.is_alive():
        time.sleep(0.01)
    sampler.stop()
    assert not sampler._thread.is_alive()
    assert any(isinstance(row, DeviceSample) for row in sampler.drain())


def test_a_task_that_fails_is_told_of_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: int) -> None:
        raise ValueError("bad")

    task = Task("doomed", fail, 1, 1.0)
    told = [run_guarded(task, 0) for _ in range(FAILURES_TO_GIVE_UP)]
    assert [len(rows) for rows in told] == [1] + [0] * (FAILURES_TO_GIVE_UP - 1)
    assert "bad" in capsys.readouterr().err


def test_looks_without_the_job_count_once_a_match_shows_the_numbers_are_ours(
    tmp_path: Path,
) -> None:
    occupants = Occupants()
    assert list(occupants.look(1, "gpu0", {}, JOB)) == []
    rows = list(occupants.look(2, "gpu0", {7: 100}, JOB))
    shares = [(row.at_ns, row.values["job.frac"]) for row in rows if isinstance(row, DeviceSample)]
    assert shares == [(1, 0.0), (2, 1.0)]
    assert occupants.why_hidden(tmp_path) is None


def test_process_numbers_of_another_namespace_are_not_believed(tmp_path: Path) -> None:
    occupants = Occupants()
    list(occupants.look(1, "gpu0", {99: 100}, JOB))
    assert "--pid=host" in (occupants.why_hidden(tmp_path) or "")
    assert occupants.why_hidden(tmp_path / "absent") is None, "without namespaces all is ours"


def test_a_process_comes_grows_and_leaves() -> None:
    occupants = Occupants()
    seen = []
    for now_ns, pids in enumerate(({7: 0}, {7: 1}, {7: 10**9}, {})):
        seen += list(occupants.look(now_ns, "gpu0", pids, JOB))
    sizes = [(row.at_ns, row.memory_bytes) for row in seen if isinstance(row, DeviceProcess)]
    assert sizes == [(0, 0), (2, 10**9), (3, 0)]


def test_hidden_processes_are_a_blind_row_and_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Occupants, "why_hidden", lambda *_: "hidden in here")
    rows = run_rounds(make_device(a=failing()))
    assert any(isinstance(row, Blind) and row.why == "hidden in here" for row in rows)
    assert [row for row in rows if isinstance(row, DeviceSeen)][-1].refusals == {
        "processes": "hidden in here"
    }


class FakeAmdError(Exception):
    def __init__(self, err_info: str) -> None:
        self.err_info = err_info


def make_amdsmi() -> ModuleType:
    """What amdsmi 7.0 gives for a healthy card, words for what it does not know included."""
    answers = {
        "get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
        "get_gpu_device_uuid": "abc",
        "get_gpu_activity": {"gfx_activity": 90, "umc_activity": "N/A"},
        "get_power_info": {"current_socket_power": 700, "average_socket_power": "N/A"},
        "get_power_cap_info": {"power_cap": 750_000_000, "default_power_cap": 750_000_000},
        "get_clock_info": {"clk": 2000, "max_clk": 2100},
        "get_gpu_vram_usage": {"vram_total": 1000, "vram_used": 100},
        "get_temp_metric": 70,
        "get_pcie_info": {
            "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32000},
            "pcie_metric": {"pcie_width": 8, "pcie_speed": 16000, "pcie_replay_count": 2},
        },
        "get_gpu_total_ecc_count": {"uncorrectable_count": 1},
        "get_violation_status": {"active_socket_thrm": True, "active_ppt_pwr": False},
        "get_gpu_process_list": [{"pid": 7, "mem": 55}],
    }
    module = SimpleNamespace(AmdSmiException=FakeAmdError)
    module.AmdSmiClkType = SimpleNamespace(GFX=0)
    module.AmdSmiTemperatureType = SimpleNamespace(HOTSPOT=1)
    module.AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    module.amdsmi_init = lambda: None
    module.amdsmi_get_processor_handles = lambda: ["card"]
    for name, answer in answers.items():
        setattr(module, f"amdsmi_{name}", lambda *_, answer=answer: answer)
    return module  # type: ignore[return-value]


@pytest.fixture
def amdsmi(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = make_amdsmi()
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    monkeypatch.setattr(amd, "_can_load", lambda _: True)
    return module


def test_an_amd_card_gives_the_same_rows(amdsmi: Any) -> None:
    (device,) = amd.find_devices(1, first=2).devices
    assert (device.seen.device, device.seen.name) == ("gpu2", "AMD Instinct MI300X")
    assert (device.seen.pcie_generation_max, device.seen.power_default_watts) == (5, 750)
    values = {name: value for rate in Rate for name, value in device.read(rate).items()}
    assert values == {
        "util.gpu_frac": pytest.approx(0.9),
        "clock.sm_hz": 2e9,
        "power.draw_watts": 700,
        "memory.used_bytes": 100 * 2**20,
        "power.cap_watts": pytest.approx(750),
        "temperature.gpu_celsius": 70,
        "pcie.generation": 4,
        "pcie.width": 8,
        "pcie.replay_count": 2,
        "ecc.uncorrected_count": 1,
        "throttle.thermal_frac": 1,
        "throttle.power_frac": 0,
    }
    assert device.find_processes() == {7: 55}
    assert "gpm" in device.seen.refusals


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        ("AMDSMI_STATUS_NO_PERM - Permission Denied", Trouble.FORBIDDEN),
        ("AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported", Trouble.UNSUPPORTED),
        ("AMDSMI_STATUS_NOT_FOUND - Device Not found", Trouble.LOST),
        ("AMDSMI_STATUS_BUSY - Device busy", Trouble.PASSING),
    ],
)
def test_errors_of_amd_are_judged_by_their_name(words: str, trouble: Trouble) -> None:
    assert amd.judge(FakeAmdError(words)) is trouble


def test_an_older_amd_library_loses_a_reading_and_no_card(amdsmi: Any) -> None:
    del amdsmi.amdsmi_get_violation_status, amdsmi.amdsmi_get_gpu_device_uuid
    (device,) = amd.find_devices(1).devices
    values = {name for rate in Rate for name in device.read(rate)}
    assert "util.gpu_frac" in values
    assert "throttle.thermal_frac" not in values


def test_bindings_of_any_age_answer_as_an_older_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pynvml` 11 has neither GPM nor the reasons for lower clocks."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            self.value = value

    module = SimpleNamespace(
        __name__="pynvml", NVMLError=NVMLError, NVML_ERROR_FUNCTION_NOT_FOUND=13, nvmlInit=int
    )
    bindings = nvidia.Bindings(module)  # type: ignore[arg-type]
    assert bindings.nvmlInit is int
    assert bindings.NVML_FI_DEV_NEW is None
    with pytest.raises(NVMLError) as refusal:
        bindings.nvmlGpmQueryDeviceSupport("handle")
    assert refusal.value.value == 13


def test_an_amd_driver_that_does_not_answer_is_told(
    amdsmi: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise FakeAmdError("no driver")

    monkeypatch.setattr(amdsmi, "amdsmi_init", fail)
    (blind,) = amd.find_devices(1).blinds
    assert "AMD SMI: no driver" in blind.why


def test_a_machine_without_accelerators_gives_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "LIBRARY", "libabsent.so")
    monkeypatch.setattr(amd, "LIBRARIES", ("libabsent.so",))
    assert nvidia.find_devices(1) == amd.find_devices(1) == FoundDevices()
    (told,) = device_capabilities.find_accelerators()
    assert (told.ok, "no GPU seen" in told.detail) == (False, True)


def test_a_library_without_its_bindings_comes_with_the_line_to_install_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvidia, "LIBRARY", "libc.so.6")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UnavailableError, match="not installed") as caught:
        nvidia.load()
    assert caught.value.how == "pip install 'fuelline[nvidia]'"
    (blind,) = nvidia.find_devices(1).blinds
    assert "pip install" in blind.why
    told, *_ = device_capabilities.find_accelerators()
    assert (told.ok, told.how_to_enable) == (False, "pip install 'fuelline[nvidia]'")
