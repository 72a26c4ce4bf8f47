"""Power samples become energy of a step, of a sample, and of what waiting draws."""

from pathlib import Path

import pytest

from fuelline.record.samplers.host import list_packages
from fuelline.schema.readings import Missing
from fuelline.schema.run.samples import DeviceSeen
from tests.unit.builders import MS, START_NS, Lane, facts_of, make_timeline

STEP_MS = 45


def steps(count: int = 200) -> Lane:
    lane = Lane()
    for _ in range(count):
        lane.step()
    return lane


def test_mean_power_gives_joules_per_step_and_sample() -> None:
    rows = [
        (START_NS + second * 1000 * MS, "gpu0", "power.draw_watts", watts)
        for second, watts in enumerate((60.0, 300.0, 300.0, 300.0, 300.0, 300.0, 300.0, 300.0))
    ]
    seen = DeviceSeen(START_NS, "gpu0", "NVIDIA", "A100")
    facts = facts_of(make_timeline(steps(), devices=rows, facts={"devices": (seen,)}))
    energy = facts.energy
    assert energy.watts.value == pytest.approx(300)
    assert energy.joules_per_step.value == pytest.approx(300 * STEP_MS / 1000, rel=0.01)
    assert energy.joules_per_sample.value == pytest.approx(300 * STEP_MS / 1000 / 32, rel=0.02)
    assert energy.least_watts.value < 300


def test_without_power_it_is_missing_and_not_zero() -> None:
    energy = facts_of(make_timeline(steps(4))).energy
    assert isinstance(energy.watts, Missing)
    assert isinstance(energy.host_watts, Missing)


def test_the_processors_counter_goes_on_when_it_runs_over(tmp_path: Path) -> None:
    for name in ("intel-rapl:0", "intel-rapl:0:0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text("0")
        (tmp_path / name / "max_energy_range_uj").write_text("1000000")
    ((path, parse),) = list_packages(tmp_path)
    assert path.endswith("intel-rapl:0/energy_uj")
    read = [dict(parse(content))["energy.package0_joules"] for content in (b"900000", b"100000")]
    assert read == pytest.approx([0.9, 1.1])
