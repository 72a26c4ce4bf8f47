"""The fleet's store in a bucket: a server that speaks S3, on loopback."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="runs in `make tools`")
SERVER = Path(sys.executable).parent / "moto_server"


class Bucket:
    """A server that can be stopped and started again; what it had is gone then."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [SERVER, "-H", "127.0.0.1", "-p", str(self.port)]
        quiet = subprocess.DEVNULL
        self.child = subprocess.Popen(words, stdout=quiet, stderr=quiet)
        for _ in range(600):
            try:
                make = urllib.request.Request(f"{self.address}/fleet", method="PUT")
                with urllib.request.urlopen(make, timeout=10):
                    return
            except OSError:  # noqa: PERF203 - it has not started yet
                time.sleep(0.1)
        raise TimeoutError("the server did not start")

    def stop(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
        self.child = None


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    found = Bucket()
    yield found
    found.stop()


def fuelline(bucket: Bucket, home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "FUELLINE_HOME": str(home),
        "AWS_ENDPOINT_URL": bucket.address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }
    command = [sys.executable, "-m", "fuelline", *map(str, words)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_rows_go_to_a_bucket_and_come_back(tmp_path: Path, bucket: Bucket) -> None:
    job = tmp_path / "quick.py"
    job.write_text("import time\ntime.sleep(0.2)\nraise SystemExit(3)\n")
    send = ("run", "--quiet", "--store", "s3://fleet/all", "--store-wait", "30s", job)
    failed = fuelline(bucket, tmp_path, *send)
    assert failed.returncode == 3
    assert "has no row of this run yet" in failed.stderr
    bucket.start()
    nothing = fuelline(bucket, tmp_path, "fleet", "s3://fleet/all", "--json")
    assert json.loads(nothing.stdout)["runs"] == 0
    sent = fuelline(bucket, tmp_path, *send)
    assert (sent.returncode, sent.stderr) == (3, "")
    answer = fuelline(bucket, tmp_path, "fleet", "s3://fleet/all", "--json")
    assert json.loads(answer.stdout)["runs"] == 2  # with the one that had no bucket to go to
    again = fuelline(bucket, tmp_path, "fleet", "s3://fleet/all", "--add", "quick", "--json")
    assert json.loads(again.stdout)["runs"] == 2
    line = fuelline(bucket, tmp_path, "fleet", "s3://fleet/all", "--epilog").stdout
    assert line.startswith("fuelline: quick, ")


def test_a_bucket_that_is_not_there_is_said(tmp_path: Path, bucket: Bucket) -> None:
    bucket.start()
    asked = fuelline(bucket, tmp_path, "fleet", "s3://nowhere/all")
    assert asked.returncode == 4
    assert "s3://nowhere/all cannot be read" in asked.stderr
    assert "Traceback" not in asked.stderr
