"""The fleet's store in a bucket, on moto's server: S3 as its clients see it."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.unit.fleet.rows import make_run

moto = pytest.importorskip("moto.server")
boto3 = pytest.importorskip("boto3")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = moto.ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="fleet")
    yield "s3://fleet/rows"
    server.stop()


def _fleet(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fuelline", "fleet", *words]
    return subprocess.run(
        command, env=os.environ, capture_output=True, text=True, timeout=120, check=False
    )


def test_rows_arrive_in_a_bucket_and_are_summed_up(bucket: str) -> None:
    from fuelline.fleet.shelf import encode_row, load_rows, place_of, put

    for number in range(3):
        run = make_run(number)
        put(bucket, place_of(run), encode_row(run))
    assert load_rows(bucket, None).frame.height == 3
    summed = _fleet(bucket, "--by", "user")
    assert summed.returncode == 0, summed.stderr
    assert "3 runs" in summed.stdout


def test_an_empty_bucket_and_a_missing_one_are_told_apart(bucket: str) -> None:
    assert "No run in s3://fleet/empty" in _fleet(bucket.replace("rows", "empty")).stdout
    missing = _fleet("s3://nobody/x")
    assert missing.returncode == 4
    assert "cannot be read" in missing.stderr
