"""One recording over two hosts, which are two launchers here: what befalls one harms no rank."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuelline import pipeline
from fuelline.schema.diagnosis.findings import Diagnosis
from tests.integration.harness import JOBS, environment
from tests.integration.jobs.ranks import STEPS

pytestmark = pytest.mark.torch

LIMIT_S = 170


def start(rank: int, port: int, run_dir: Path | None) -> subprocess.Popen[str]:
    """One rank of the job on its host, recorded or plain."""
    recorder = ["-m", "fuelline", "run", "--quiet", "--node-rank", str(rank), "--run-dir"]
    recorded = [*recorder, str(run_dir), "--", sys.executable] if run_dir else []
    return subprocess.Popen(
        [sys.executable, *recorded, str(JOBS / "ranks.py"), "ddp"],
        env={
            **environment(None),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "2",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start_both(*run_dirs: Path) -> list[subprocess.Popen[str]]:
    """Each host has its own view of the run's folder, if there is one."""
    port = find_port()
    views = run_dirs * 2 if len(run_dirs) == 1 else run_dirs or (None, None)
    return [start(rank, port, views[rank]) for rank in (0, 1)]


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What each rank has computed."""
    try:
        outcomes = [process.communicate(timeout=LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], outcomes
    return [output for output, _ in outcomes]


def observer_of(launcher: subprocess.Popen[str]) -> int:
    """The observer's pid, once it has been started."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    while launcher.poll() is None:
        for pid in children.read_text().split():
            if b"fuelline.record.observer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    pytest.fail("the job ended without an observer")


def blindspots(diagnosis: Diagnosis) -> str:
    return " ".join(f"{spot.what}: {spot.why}" for spot in diagnosis.blindspots)


@pytest.fixture(scope="module")
def plain() -> list[str]:
    return finish(start_both())


def test_two_hosts_make_one_run(tmp_path: Path, plain: list[str]) -> None:
    assert finish(start_both(tmp_path / "run")) == plain
    diagnosis = pipeline.diagnose_run(tmp_path / "run")
    assert diagnosis.collectives.ranks == 2
    assert diagnosis.steps.count == STEPS - 1


def test_a_dead_observer_on_one_host_leaves_the_job_and_the_rest_of_the_run(
    tmp_path: Path, plain: list[str]
) -> None:
    hosts = start_both(tmp_path / "run")
    os.kill(observer_of(hosts[1]), signal.SIGKILL)
    assert finish(hosts) == plain
    diagnosis = pipeline.diagnose_run(tmp_path / "run")
    assert diagnosis.collectives.ranks == 2
    assert diagnosis.steps.count == STEPS - 1
    assert "the observer ended with code -9" in blindspots(diagnosis)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Room for a folder or two."""
    folder = tmp_path / "full"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4k", "fuelline-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a small filesystem cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_on_one_host_leaves_the_job_and_the_missing_part_is_named(
    tmp_path: Path, full_disk: Path, plain: list[str]
) -> None:
    assert finish(start_both(tmp_path / "run", full_disk)) == plain
    shutil.copytree(full_disk / "node-0001", tmp_path / "run" / "node-0001")  # no link is followed
    diagnosis = pipeline.diagnose_run(tmp_path / "run")
    assert diagnosis.steps.count == STEPS - 1
    assert "(node-0001)" in blindspots(diagnosis)


def test_a_part_that_got_lost_is_named_and_the_rest_is_diagnosed(
    tmp_path: Path, plain: list[str]
) -> None:
    assert finish(start_both(tmp_path / "run")) == plain
    for file in (tmp_path / "run" / "node-0001").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    diagnosis = pipeline.diagnose_run(tmp_path / "run")
    assert diagnosis.steps.count == STEPS - 1
    assert "node-0001" in blindspots(diagnosis)


def run_under_mpi(*recorder: str) -> list[str]:
    """What the tasks say; mpirun gives each a core of its own, which changes sums."""
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    done = subprocess.run(
        [*mpirun, sys.executable, *recorder, str(JOBS / "mpi.py"), "ddp"],
        env={
            **environment(None),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(find_port()),
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_mpirun_may_start_a_recorder_for_each_task(tmp_path: Path) -> None:
    recorder = ["-m", "fuelline", "run", "--quiet", "--node-rank", "auto", "--run-dir"]
    said = run_under_mpi(*recorder, str(tmp_path / "run"), "--", sys.executable)
    assert said == run_under_mpi()
    assert pipeline.diagnose_run(tmp_path / "run").collectives.ranks == 2
