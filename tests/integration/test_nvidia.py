"""The real NVIDIA bindings against a stub of the driver: what is seen, refused and lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from fuelline.ingest import compact_recording, load_recording
from fuelline.pipeline import diagnose_run
from fuelline.schema.run.samples import Blind, DeviceProcess, DeviceSample, DeviceSeen, Row
from fuelline.signals import measure_devices
from tests.stubs import nvml

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
pytestmark = pytest.mark.skipif(nvml.GCC is None, reason="gcc is needed to build the stub")

ROOT = Path(__file__).parents[2]
PID = 4711
TRAINING = """
import os, time, torch
from torch.utils.data import DataLoader, TensorDataset

with open(os.environ["FAKE_PROCESSES"], "w") as file:
    file.writelines(f"{index} {os.getpid()}\\n" for index in range(8))
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for (rows,) in DataLoader(TensorDataset(torch.randn(400, 8)), batch_size=8):
    time.sleep(0.1)
    model(rows).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml.build(tmp_path_factory.mktemp("old-nvml"), "OLD_DRIVER")


def ask(library: Path, *arguments: object, **fake: object) -> list[Row]:
    command = [sys.executable, "-m", "tests.stubs.ask", str(PID), *map(str, arguments)]
    environment = nvml.environment(library, **fake)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    return msgspec.msgpack.decode(done.stdout, type=list[Row])


def rows_of(rows: list[Row], kind: type[Any]) -> list[Any]:
    return [row for row in rows if isinstance(row, kind)]


def values_of(rows: list[Row], device: str) -> dict[str, float]:
    """The last value of each name."""
    samples = [row for row in rows_of(rows, DeviceSample) if row.device == device]
    return {name: value for row in samples for name, value in row.values.items()}


def test_a_device_tells_what_it_is_and_what_it_does(library: Path) -> None:
    rows = ask(library)
    (seen,) = rows_of(rows, DeviceSeen)
    assert (seen.device, seen.vendor, seen.name) == ("gpu0", "NVIDIA", "NVIDIA H100 80GB HBM3")
    assert (seen.uuid, seen.driver, seen.memory_bytes) == ("GPU-stub-0", "570.00", 80 * 2**30)
    assert (seen.power_cap_watts, seen.power_default_watts) == (700, 700)
    assert (seen.sm_clock_max_hz, seen.pcie_generation_max, seen.pcie_width_max) == (1.98e9, 5, 16)
    assert seen.refusals == {}
    values = values_of(rows, "gpu0")
    assert values["util.gpu_frac"] == pytest.approx(0.95)
    assert values["power.draw_watts"] == pytest.approx(650)
    assert values["clock.free_hz"] == pytest.approx(1.98e9)
    assert "clock.throttled_hz" not in values
    assert values["memory.used_bytes"] == 20 * 2**30
    assert values["gpm.sm_frac"] == pytest.approx(0.6)
    assert values["gpm.tensor_frac"] == pytest.approx(0.2)
    assert values["gpm.pcie_rx_bytes_per_s"] == pytest.approx(2**30)
    assert "gpm.nvlink_rx_bytes_per_s" not in values, "the stub has no NVLink"
    assert (values["pcie.generation"], values["pcie.width"]) == (5, 16)
    assert values["ecc.uncorrected_count"] == values["throttle.thermal_frac"] == 0
    assert "pages.pending" not in values, "this chip retires no pages"
    assert not rows_of(rows, Blind)


def test_a_library_without_devices_gives_no_row(library: Path) -> None:
    assert ask(library, gpus=0) == []


def test_a_driver_that_is_not_loaded_is_told_with_the_next_step(library: Path) -> None:
    (blind,) = ask(library, init=9)
    assert isinstance(blind, Blind)
    assert "Driver Not Loaded" in blind.why
    assert "nvidia-smi" in blind.why


def test_an_old_driver_has_no_gpm_but_everything_else(old_library: Path) -> None:
    rows = ask(old_library, throttled=0)
    (seen,) = rows_of(rows, DeviceSeen)
    assert seen.refusals == {"gpm": "this driver has no GPM (Function Not Found)"}
    values = values_of(rows, "gpu0")
    assert not [name for name in values if name.startswith("gpm.")]
    assert values["throttle.thermal_frac"] == 1, "the reasons are read under their old name"
    assert values["util.gpu_frac"] == pytest.approx(0.95)
    assert not rows_of(rows, Blind)


def test_a_refused_gpm_sample_is_told_once_a_device(library: Path) -> None:
    rows = ask(library, gpus=2, no_gpm=4)
    blinds = rows_of(rows, Blind)
    assert [blind.what for blind in blinds] == ["gpm of gpu0", "gpm of gpu1"]
    assert all("Insufficient Permissions" in blind.why for blind in blinds)
    assert values_of(rows, "gpu1")["util.gpu_frac"] == pytest.approx(0.95)


def test_a_device_that_may_not_be_opened_leaves_the_others_alone(library: Path) -> None:
    rows = ask(library, gpus=3, denied=1)
    assert [seen.device for seen in rows_of(rows, DeviceSeen)] == ["gpu0", "gpu2"]
    (blind,) = rows_of(rows, Blind)
    assert (blind.what, "Insufficient Permissions" in blind.why) == ("gpu1", True)


def test_a_device_lost_in_mid_run_is_told_and_the_others_go_on(
    library: Path, tmp_path: Path
) -> None:
    lost_file = tmp_path / "lost"
    rows = ask(library, lost_file, gpus=3, lost=1, lost_file=lost_file)
    (blind,) = rows_of(rows, Blind)
    assert blind.what == "gpu1 from that moment"
    assert "GPU is lost" in blind.why
    assert values_of(rows, "gpu1")["lost"] == 1
    counts = {
        key: sum(
            "util.gpu_frac" in row.values
            for row in rows_of(rows, DeviceSample)
            if row.device == key
        )
        for key in ("gpu0", "gpu1", "gpu2")
    }
    assert counts == {"gpu0": 3, "gpu1": 2, "gpu2": 3}


def test_a_device_that_was_lost_before_is_known_and_lost(library: Path, tmp_path: Path) -> None:
    lost_file = tmp_path / "lost"
    lost_file.touch()
    rows = ask(library, gpus=2, lost=0, lost_file=lost_file)
    assert {seen.device for seen in rows_of(rows, DeviceSeen)} == {"gpu0", "gpu1"}
    assert values_of(rows, "gpu0") == {"lost": 1}


def test_slices_of_a_card_are_devices_of_their_own(library: Path, tmp_path: Path) -> None:
    processes = tmp_path / "processes"
    processes.write_text(f"101 {PID}\n")
    rows = ask(library, mig=1, processes=processes)
    seen = {row.device: row for row in rows_of(rows, DeviceSeen)}
    assert set(seen) == {"gpu0", "gpu0.mig0", "gpu0.mig1"}
    assert seen["gpu0.mig1"].parent == "gpu0"
    assert seen["gpu0.mig1"].name.endswith("MIG 3g.40gb")
    assert seen["gpu0.mig1"].memory_bytes == 40 * 2**30
    assert values_of(rows, "gpu0.mig1")["gpm.sm_frac"] == pytest.approx(0.6)
    assert values_of(rows, "gpu0")["power.draw_watts"] == pytest.approx(650)
    assert "utilisation" in seen["gpu0"].refusals
    (process,) = rows_of(rows, DeviceProcess)
    assert (process.device, process.pid, process.of_job) == ("gpu0.mig1", PID, True)


def test_processes_of_the_job_are_told_from_others(library: Path, tmp_path: Path) -> None:
    processes = tmp_path / "processes"
    processes.write_text(f"0 {PID}\n0 99\n1 99\n")
    rows = ask(library, gpus=2, processes=processes)
    found = {(row.device, row.pid, row.of_job) for row in rows_of(rows, DeviceProcess)}
    assert found == {("gpu0", PID, True), ("gpu0", 99, False), ("gpu1", 99, False)}
    assert values_of(rows, "gpu0")["job.frac"] == 1
    assert values_of(rows, "gpu1")["job.frac"] == 0


def record(library: Path, folder: Path, script: str, **fake: object) -> Path:
    """`fuelline run` of a script with the stub in place; returns the run's folder."""
    (folder / "job.py").write_text(script)
    run_dir = folder / "run"
    command = [sys.executable, "-m", "fuelline", "run", "--quiet", "--run-dir", str(run_dir)]
    done = subprocess.run(
        [*command, str(folder / "job.py")],
        env=nvml.environment(library, **fake),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (run_dir / "observer.log").read_text() == ""
    return run_dir


def test_the_observer_outlives_a_device_that_falls_off_the_bus(
    library: Path, tmp_path: Path
) -> None:
    """A job without steps: there is no verdict, but what its accelerators did is told."""
    lost_file = tmp_path / "lost"
    script = f"import time; time.sleep(3); open({str(lost_file)!r}, 'w').close(); time.sleep(3)"
    run_dir = record(library, tmp_path, script, gpus=2, lost=1, lost_file=lost_file)
    found = diagnose_run(run_dir)
    assert found.verdict.code is None
    assert [spot.what for spot in found.blindspots] == ["gpu1 from that moment"]
    kept, lost = found.devices
    assert (kept.is_lost, lost.is_lost) == (False, True)
    assert kept.ladder["reported utilisation"] == pytest.approx(0.95)
    assert 0 < (lost.ladder["reported utilisation"] or 0) < 0.9
    last_ns = load_recording(run_dir).table("devices").group_by("device").agg(pl.col("at_ns").max())
    ends = dict(last_ns.iter_rows())
    assert ends["gpu0"] > ends["gpu1"]


@pytest.mark.torch
def test_of_eight_devices_the_throttled_one_is_the_verdict(library: Path, tmp_path: Path) -> None:
    """The whole way: a real run with a stub of the driver, recorded, compacted and diagnosed."""
    processes = tmp_path / "processes"
    run_dir = record(library, tmp_path, TRAINING, gpus=8, throttled=3, processes=processes)
    raw = load_recording(run_dir)
    assert compact_recording(run_dir).devices == raw.devices
    found = diagnose_run(run_dir, price=2.0)
    assert found.verdict.code == "CP402", found.verdict.sentence
    pid = processes.read_text().split()[1]
    assert f"gpu3 (NVIDIA H100 80GB HBM3, pid {pid})" in found.verdict.sentence
    assert [device.device for device in found.devices] == [f"gpu{index}" for index in range(8)]
    ladder = found.devices[3].ladder
    assert ladder["allocated"] == 1
    assert ladder["SMs active"] == pytest.approx(0.6)
    assert ladder["MFU"] is None
    assert 0 < (ladder["job alive"] or 0) <= 1
    assert measure_devices(raw).unused == []
