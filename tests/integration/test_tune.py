"""`fuelline tune` on a real script: tried in its own loop, patched, and undone to the byte."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fuelline.cli import main
from tests.integration.harness import JOBS

pytestmark = pytest.mark.torch


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUELLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("fuelline.cli.fix.trial_runs.BASELINE_S", 2.0)
    return Path(shutil.copy(JOBS / "sleepy.py", tmp_path / "train.py"))


def test_a_script_is_tuned_patched_and_restored(
    script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = script.read_bytes()
    words = ["tune", "--seconds", "0.6", "--rounds", "1", "--json", "--apply", str(script), "90"]
    assert main(words) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["script"] == str(script)
    assert len(told["trials"]) > 1
    assert told["trials"][0]["settings"] == []
    assert all(trial["batches_per_s"] for trial in told["trials"])
    chosen = {each["knob"]: each["value"] for each in told["chosen"]}
    assert chosen["num_workers"] > 1
    assert f"num_workers={chosen['num_workers']}" in told["patch"]
    assert f"num_workers={chosen['num_workers']}".encode() in script.read_bytes()
    assert main(["undo"]) == 0
    assert script.read_bytes() == before
    assert main(["undo"]) == 3


def test_a_script_without_a_loader_says_so(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script.write_text("import torch.utils.data\nprint('nothing to load')\n")
    assert main(["tune", str(script)]) == 3
    told = capfd.readouterr()
    assert "before a DataLoader was iterated" in told.err
    assert "nothing to load" in told.err
    assert not told.out


def test_a_tuning_that_is_ended_leaves_neither_its_job_nor_its_folder(
    script: Path, tmp_path: Path
) -> None:
    """While settings are tried: the job is a plain child then, and would train on without us."""
    scratch = (
        tmp_path / "t"
    )  # short: torch makes sockets below, whose paths have 107 characters at most
    scratch.mkdir()
    code = (
        "import sys, fuelline.cli.fix.trial_runs as runs; runs.BASELINE_S = 1.0;"
        "from fuelline.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    tuning = subprocess.Popen(
        [sys.executable, "-c", code, "tune", str(script), "100000"],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tuning.stderr is not None
    assert any("Trying" in line for line in tuning.stderr)
    while not (jobs := find_children(tuning.pid)):
        assert tuning.poll() is None
    tuning.terminate()
    tuning.communicate(timeout=60)
    assert tuning.returncode == 130
    assert list(scratch.glob("fuelline-*")) == []  # torch leaves a folder of its own
    assert not any(Path(f"/proc/{job}").exists() for job in jobs)


def find_children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
