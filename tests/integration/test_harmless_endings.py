"""Kills, full disks, crowds: the job ends as without us, and what was recorded can be read."""

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from errno import EFBIG, ENOSPC
from pathlib import Path

import pytest

from fuelline.ingest.recording import spool as ingest
from fuelline.schema import wire
from fuelline.schema.errors import DamagedRecordingError
from fuelline.schema.wire import Kind
from tests.integration.harness import Left, Outcome, read_spools, run, trainer_of

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def plain_long() -> Outcome:
    return run("endings.py", "long_trainer")


def run_both(ending: str, run_dir: Path) -> list[Left]:
    """Assert that the job's own outcome is the same, and return what was recorded."""
    plain = run("endings.py", ending)
    recorded = run("endings.py", ending, run_dir=run_dir)
    assert (recorded.exit_code, recorded.output) == (plain.exit_code, plain.output)
    assert "fuelline" not in recorded.errors.replace(str(Path(wire.__file__).parents[1]), "")
    spools = read_spools(run_dir)
    assert [left.faults for left in spools] == [0] * len(spools)
    return spools


def test_a_killed_worker_fails_the_job_as_without_us(tmp_path: Path) -> None:
    spools = run_both("killed_worker", tmp_path)
    killed = [left for left in spools if left.parent == trainer_of(spools).pid]
    assert all(left.of(Kind.FETCH) for left in killed)
    assert len(killed) == 2


def test_all_steps_of_a_killed_trainer_can_be_read(tmp_path: Path) -> None:
    trainer = trainer_of(run_both("killed_trainer", tmp_path))
    assert len(trainer.of(Kind.WAIT)) == 51
    assert len(trainer.of(Kind.BACKWARD)) == trainer.steps == 50


def test_spools_that_are_cut_short_cost_the_recording_only(tmp_path: Path) -> None:
    plain = run("endings.py", "cut_spools")
    recorded = run("endings.py", "cut_spools", run_dir=tmp_path)
    assert plain.exit_code == 0
    assert (recorded.exit_code, recorded.output) == (plain.exit_code, plain.output)
    (spool,) = tmp_path.glob("spool/*")
    with pytest.raises(DamagedRecordingError, match="was cut short"):
        ingest.read_spool(spool)


def test_an_interrupt_reaches_the_job(tmp_path: Path) -> None:
    spools = run_both("interrupted_trainer", tmp_path)
    assert trainer_of(spools).steps > 0


def test_each_of_many_short_lived_workers_leaves_a_small_file(tmp_path: Path) -> None:
    outcome = run("endings.py", "short_lived_workers", run_dir=tmp_path)
    assert (outcome.exit_code, outcome.output) == (0, f"{150 * (0 + 1 + 2 + 3)}\n")
    spools = read_spools(tmp_path)
    workers = [left for left in spools if left.of(Kind.FETCH)]
    sizes = [file.stat().st_size for file in tmp_path.glob("spool/*")]
    assert len(workers) == 300
    assert sum(size < 2 * wire.HEADER_BYTES for size in sizes) == 300


def test_a_crowd_of_threads_loses_no_record_and_no_descriptor(tmp_path: Path) -> None:
    (left,) = run_both("crowd", tmp_path)
    assert left.count()["WAIT"] == 500 * 4
    assert left.count()["BACKWARD"] == 500 * 3
    assert len({record[7] for record in left.of(Kind.WAIT)}) == 500
    assert left.dropped == 0


def test_descriptors_that_the_job_took_over_are_left_alone(tmp_path: Path) -> None:
    (left,) = run_both("daemonised", tmp_path)
    assert left.steps == 3040


def test_forked_children_that_train_get_spools_of_their_own(tmp_path: Path) -> None:
    parent, *children = run_both("forking_trainer", tmp_path)
    assert parent.steps == 40
    assert [child.steps for child in children] == [20, 20]
    assert [len(child.settings()) for child in children] == [1, 1]
    assert {child.parent for child in children} == {parent.pid}


def test_a_file_size_limit_stops_the_recording_only(tmp_path: Path, plain_long: Outcome) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    recorded = run("endings.py", "long_trainer", run_dir=tmp_path, before_exec=limit)
    assert (recorded.exit_code, recorded.output) == (0, plain_long.output)
    (left,) = read_spools(tmp_path)
    assert left.stopped == EFBIG
    assert left.dropped > 400
    assert left.count()["WAIT"] > 5


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32k", "fuelline-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a small filesystem cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_stops_the_recording_only(tiny_disk: Path, plain_long: Outcome) -> None:
    recorded = run("endings.py", "long_trainer", run_dir=tiny_disk)
    assert (recorded.exit_code, recorded.output) == (0, plain_long.output)
    (left,) = read_spools(tiny_disk)
    assert left.stopped == ENOSPC
    assert left.dropped > 400
    assert 0 < left.steps < 400


@pytest.mark.parametrize("place", ["/proc/nowhere", "file", "missing"])
def test_a_folder_that_cannot_be_written_leaves_the_job_alone(
    tmp_path: Path, place: str, plain_long: Outcome
) -> None:
    (tmp_path / "file").write_text("not a folder")
    recorded = run("endings.py", "long_trainer", run_dir=tmp_path / place)
    assert (recorded.exit_code, recorded.output, recorded.errors) == (
        0,
        plain_long.output,
        plain_long.errors,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
