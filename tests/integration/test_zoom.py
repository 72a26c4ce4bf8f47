"""`--zoom` profiles the steps that were asked for and leaves the training's numbers alone."""

import gzip
import json
import sys
from pathlib import Path

import pytest

from fuelline.cli import main
from fuelline.ingest import read_recording
from fuelline.record.launch import launch
from fuelline.schema.wire import Kind
from tests.integration.harness import JOBS, run

pytestmark = pytest.mark.torch

JOB = JOBS / "tiny.py"


def test_the_steps_are_profiled_and_one_is_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = run(JOB.name)
    launch([sys.executable, str(JOB)], tmp_path / "run", zoom="3@10")
    told = capfd.readouterr()
    assert (told.out, told.err) == (plain.output, plain.errors)
    (trace,) = (tmp_path / "run").glob("zoom-*.json.gz")
    assert trace.stat().st_mode & 0o777 == 0o600
    names = [
        each.get("name") for each in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    ]
    assert names.count("Optimizer.step#SGD.step") == 3
    events = read_recording(tmp_path / "run").table("events")
    (flops,) = events.filter(events["kind"] == Kind.FLOPS)["a"]
    assert flops == 2 * 2 * 8 * 64 * 64  # forward, and backward for the weights only
    assert events.filter(events["kind"] == Kind.STEP).height == 40


def test_a_job_that_ends_before_the_zoom_is_recorded_all_the_same(tmp_path: Path) -> None:
    launch([sys.executable, str(JOB)], tmp_path / "run", zoom="3@38")
    assert not list((tmp_path / "run").glob("zoom-*"))
    assert read_recording(tmp_path / "run").blindspots == ()


FAILS = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    if step == 3:
        raise ValueError("in the midst of a zoom")
"""


def test_a_job_that_fails_in_the_midst_of_a_zoom_fails_as_without(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(FAILS)
    outcome = launch([sys.executable, str(tmp_path / "job.py")], tmp_path / "run", zoom="3@3")
    assert outcome.returncode == 1


@pytest.mark.parametrize("word", ["3", "@5", "0@5", "x@y", "3@-1", "1000@1"])
def test_a_word_that_is_no_zoom_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["run", "--zoom", word, "train.py"])
    assert leaving.value.code == 2
    assert "3@100" in capsys.readouterr().err
