"""`fuelline run --fix --ray` with a real Ray: a head and a node in namespaces of this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

from bench import remote_job
from bench.remote import measure_gain
from bench.remote_hosts import can_make_hosts

pytestmark = [pytest.mark.integration, pytest.mark.root]


@pytest.mark.skipif(not can_make_hosts(), reason="needs root and network namespaces")
def test_actors_of_two_nodes_prepare_the_same_batches() -> None:
    found = measure_gain(with_ray=True)
    assert found["code"] == 0
    assert found["left"] == []
    assert found["batches"] > 0
    assert found["hash"] == remote_job.run_plainly()


def test_where_no_cluster_runs_the_job_says_so_and_goes_on(tmp_path: Path) -> None:
    words = [f"{Path(sys.executable).parent}/fuelline", "run", "--fix", "--ray", "127.0.0.1:9"]
    environment = {**os.environ, "FUELLINE_BENCH_HASH": str(tmp_path / "hash")}
    command = ["taskset", "-c", "0", *words, "--quiet", "--run-dir", str(tmp_path / "run")]
    subprocess.run([*command, remote_job.__file__, "job"], env=environment, check=True)
    text = "".join(path.read_text() for path in (tmp_path / "run/fix").glob("*.jsonl"))
    events = [json.loads(line) for line in text.splitlines()]
    why = next(each["why"] for each in events if each["event"] == "remote_left")
    assert "127.0.0.1:9" in why
    assert (tmp_path / "hash").read_text() == remote_job.run_plainly()
