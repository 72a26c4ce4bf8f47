"""The command in a process of its own, whose output ends early or is full."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.ingest.remains import RUN, write_run


@pytest.fixture
def recorded(store: Path) -> Path:
    """A finished run in the store."""
    return write_run(store / "runs" / RUN.run_id)


def test_a_reader_that_leaves_early_is_no_error(recorded: Path) -> None:
    command = f"{sys.executable} -m fuelline diagnose {recorded} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


@pytest.mark.parametrize("words", [["diagnose"], ["diagnose", "--json"], ["watch", "--once"]])
def test_a_reader_that_leaves_early_gives_the_code_of_sigpipe(
    recorded: Path, words: list[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fuelline", *words, str(recorded)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_output_that_is_full_is_said(recorded: Path) -> None:
    command = [sys.executable, "-m", "fuelline", "diagnose", "--json", str(recorded)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 4
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
