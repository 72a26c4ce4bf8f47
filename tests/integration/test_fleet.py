"""`run --store`: a row for the fleet, without delaying or failing the job."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

JOB = "import time\ntime.sleep(0.2)\nraise SystemExit(3)\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "quick.py"
    path.write_text(JOB)
    return path


def _fuelline(home: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FUELLINE_HOME": str(home), **variables}
    command = [sys.executable, "-m", "fuelline", *map(str, words)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def _list_rows(store: Path) -> list[Path]:
    return sorted(store.glob("*/*.parquet"))


def _find_pending(home: Path) -> list[Path]:
    return sorted(home.glob("runs/*/fleet-*"))


def test_a_run_leaves_a_row_and_the_job_its_exit_code(tmp_path: Path, job: Path) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    ended = _fuelline(home, "run", "--quiet", "--store", store, job, SLURM_JOB_ID="4711")
    assert ended.returncode == 3
    assert len(_list_rows(store)) == 1
    assert _find_pending(home) == []
    line = _fuelline(home, "fleet", store, "--epilog", SLURM_JOB_ID="4711").stdout
    assert line.startswith("fuelline: quick, ")
    assert line.count("\n") == 1
    other = _fuelline(home, "fleet", store, "--epilog", SLURM_JOB_ID="1").stdout
    assert other == f"fuelline: no run of batch job 1 in {store}\n"


def test_what_the_store_did_not_take_goes_with_the_next_run(tmp_path: Path, job: Path) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    store.write_text("no folder")
    failed = _fuelline(home, "run", "--quiet", "--store", store, job)
    assert failed.returncode == 3
    assert "has no row of this run yet" in failed.stderr
    assert len(_find_pending(home)) == 2
    store.unlink()
    _fuelline(home, "run", "--quiet", "--store", store, job)
    assert len(_list_rows(store)) == 2
    assert _find_pending(home) == []


def test_a_store_that_does_not_answer_is_not_waited_for(tmp_path: Path, job: Path) -> None:
    home = tmp_path / "home"
    nowhere = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    words = ("run", "--quiet", "--store", "s3://bucket/x", "--store-wait", "100ms", job)
    ended = _fuelline(home, *words, **nowhere)
    assert ended.returncode == 3
    assert "it was not there in time (--store-wait)" in ended.stderr
    assert _find_pending(home)[0].name == "fleet-pending.json"


def test_a_run_that_was_not_even_summed_up_goes_with_the_next(tmp_path: Path, job: Path) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    words = ("run", "--quiet", "--store", store)
    _fuelline(home, *words, "--store-wait", "0s", job, SLURM_JOB_ID="4711")
    assert _list_rows(store) == []
    _fuelline(home, *words, job)
    assert len(_list_rows(store)) == 2
    assert _find_pending(home) == []
    line = _fuelline(home, "fleet", store, "--epilog", SLURM_JOB_ID="4711").stdout
    assert line.startswith("fuelline: quick, ")


def test_a_bucket_that_takes_connections_and_says_nothing_is_not_waited_for(
    tmp_path: Path, job: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nowhere = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
        words = ("run", "--quiet", "--store", "s3://bucket/x", "--store-wait", "3s", job)
        began_s = time.monotonic()
        ended = _fuelline(tmp_path / "home", *words, **nowhere)
    assert ended.returncode == 3
    assert time.monotonic() - began_s < 60  # the client's own patience is minutes
    assert "it was not there in time (--store-wait)" in ended.stderr


def test_a_run_that_was_recorded_before_can_be_added(tmp_path: Path, job: Path) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    _fuelline(home, "run", "--quiet", job)
    added = _fuelline(home, "fleet", store, "--add", "quick", "--json")
    assert added.returncode == 0
    assert json.loads(added.stdout)["runs"] == 1


def test_a_part_of_a_run_has_no_row(tmp_path: Path, job: Path) -> None:
    words = ("run", "--store", tmp_path / "s", "--node-rank", 1, "--run-dir", tmp_path / "r", job)
    refused = _fuelline(tmp_path / "home", *words)
    assert refused.returncode == 2
    assert "fuelline fleet" in refused.stderr
    assert not (tmp_path / "r").exists()
