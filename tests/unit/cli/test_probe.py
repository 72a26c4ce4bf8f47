"""What a probe says of a disk for `whatif --storage probe.json`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fuelline.cli.probe import _summarise
from fuelline.record.ceilings.place import prepare_place
from fuelline.schema.ceilings import Ceiling
from fuelline.schema.readings import Missing, Reading, Signal


def disk(alone: float, crowd: float | None) -> list[Ceiling]:
    crowded: Signal = Missing(reason="no") if crowd is None else Reading(value=crowd, unit="1/s")
    return [
        Ceiling(group="storage", name=name, what=name, signal=signal)
        for name, signal in (
            ("sequential_read_cold", Reading(value=2e8, unit="bytes/s")),
            ("random_4k_cold_1", Reading(value=alone, unit="1/s")),
            ("random_4k_cold_16", crowded),
        )
    ]


@pytest.mark.parametrize(
    ("crowd", "at_once"), [(100.0, 1), (400.0, 4), (1600.0, None), (50.0, 1), (None, None)]
)
def test_a_disk_that_16_requests_fill_has_a_most(crowd: float | None, at_once: int | None) -> None:
    found = _summarise(disk(100.0, crowd), "ext4")
    assert found is not None
    assert found.requests_at_once == at_once
    assert found.request_seconds == pytest.approx(0.01)


@pytest.mark.parametrize("ends", [(signal.SIGTERM,), (signal.SIGHUP, signal.SIGINT)])
def test_a_probe_that_is_ended_leaves_nothing_behind(
    tmp_path: Path, ends: tuple[signal.Signals, ...]
) -> None:
    command = [sys.executable, "-m", "fuelline", "probe", str(tmp_path), "--size", "16M"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as probe:
        while not list(tmp_path.iterdir()):
            assert probe.poll() is None
        for each in ends:
            probe.send_signal(each)
        _, said = probe.communicate()
    assert probe.returncode == 130
    assert b"Traceback" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_an_old_folder_of_another_user_is_left_alone(tmp_path: Path) -> None:
    for name, owner in ((".fuelline-probe-4194302", 0), (".fuelline-probe-4194303", 61234)):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, owner, owner)
    with prepare_place(tmp_path, 1 << 20, 0.1) as place:
        assert place.folder.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == [".fuelline-probe-4194303"]
