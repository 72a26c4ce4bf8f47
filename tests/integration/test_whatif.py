"""`fuelline whatif` on a real recording, and what it says to those who ask the impossible."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from fuelline.cli import main
from fuelline.record.launch import launch
from tests.integration.harness import JOBS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("whatif") / "run"
    launch([sys.executable, str(JOBS / "sleepy.py"), "4"], run_dir)
    return run_dir


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["whatif", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_more_workers_help_a_loop_that_waits(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ask(capsys, str(recording), "--workers", "3", "--price", "2.5")
    (answer,) = told["forecasts"]
    speedup = answer["speedup"]
    assert speedup["type"] == "reading", speedup
    assert speedup["low"] <= speedup["value"] <= speedup["high"]
    assert 1.3 < speedup["value"] < 4.5
    assert answer["words"] == "3 workers"
    assert answer["worth_usd_per_day"] == pytest.approx(60 * (1 - 1 / speedup["value"]))
    assert told["samples_per_s"] > 0
    assert answer["bounds"][0]["speedup"] >= speedup["value"]


def test_nothing_changed_is_nothing_gained(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = ask(capsys, str(recording), "--workers", "1")["forecasts"]
    assert answer["speedup"]["value"] == pytest.approx(1.0)


def test_without_a_question_the_best_answers_come(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(recording)]) == 0
    said = capsys.readouterr().out
    assert "What would help most" in said
    assert "workers" in said
    assert all(len(line) <= 80 for line in said.splitlines())


def test_a_question_without_evidence_is_answered_with_the_reason(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = ask(capsys, str(recording), "--pin", "on")["forecasts"]
    assert answer["speedup"] == {"type": "missing", "reason": "no copy to a device was seen"}
    assert main(["whatif", str(recording), "--rarer", "checkpoint=2"]) == 0
    assert "cannot tell" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("--workers", "10000"),
        ("--workers", "-1"),
        ("--storage", "floppy"),
        ("--chip", "0x"),
        ("--rarer", "sleeping=3"),
        ("--workers", "0", "--prefetch", "4"),
    ],
)
def test_the_impossible_is_refused_in_words(
    recording: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["whatif", str(recording), *words])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    said = capsys.readouterr().err
    assert words[0] in said
    assert words[1].split("=")[0] in said


def test_a_run_that_is_not_there_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "no-such-run", "--workers", "2"]) == 3
    assert "no-such-run" in capsys.readouterr().err


def test_a_job_without_a_loader_has_no_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import torch\nprint(torch.zeros(1))\n")
    launch([sys.executable, str(script)], tmp_path / "run")
    capsys.readouterr()
    (answer,) = ask(capsys, str(tmp_path / "run"), "--workers", "2")["forecasts"]
    assert answer["speedup"]["type"] == "missing"
