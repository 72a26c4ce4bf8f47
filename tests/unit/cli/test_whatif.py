"""`fuelline whatif`: what it says of a job, and to those who ask the impossible."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fuelline.cli import main
from fuelline.schema.readings import Missing
from tests.unit.whatif.jobs import make_facts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One worker that decodes for 20 ms; the device could take a batch every 10 ms."""
    facts = make_facts(batch=21.5, workers=1, cpu=20.0, device=10.0)
    monkeypatch.setattr("fuelline.pipeline.asked.measure_fixed", lambda _run_dir: (facts, None))
    return str(tmp_path)


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["whatif", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_answer_has_an_interval_a_next_limit_and_a_worth(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ask(capsys, job, "--workers", "4", "--price", "2.5")
    (answer,) = told["forecasts"]
    speedup = answer["speedup"]
    assert speedup["low"] < speedup["value"] < speedup["high"]
    assert speedup["value"] == pytest.approx(2.15, rel=0.02)
    assert (answer["words"], answer["limit"]) == ("4 workers", "device")
    assert answer["worth_usd_per_day"] == pytest.approx(60 * (1 - 1 / speedup["value"]))
    assert told["limit_words"] == "the number of workers"
    assert told["samples_per_s"] == pytest.approx(16 / 21.5e-3)
    assert answer["bounds"][0]["speedup"] >= speedup["value"]


def test_questions_combine(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workers", "8", "--storage", "nvme", "--chip", "3x", "--cores", "16")
    (answer,) = ask(capsys, job, *words)["forecasts"]
    said = "8 workers, a local NVMe disk, a device 3 times as fast, 16 cores"
    assert answer["words"] == said
    assert answer["speedup"]["value"] > 4


def test_nothing_changed_is_nothing_gained(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    (answer,) = ask(capsys, job, "--workers", "1")["forecasts"]
    assert answer["speedup"]["value"] == pytest.approx(1.0)


def test_the_sentence_is_the_promised_one(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", job, "--workers", "4"]) == 0
    said = capsys.readouterr().out
    assert "Now 744 samples/s; the limit is the number of workers." in said
    assert "4 workers: 2.1" in said
    assert "), then the device itself" in said
    assert all(len(line) <= 80 for line in said.splitlines() if "Next:" not in line)


def test_without_a_question_the_best_answers_come(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ask(capsys, job)["forecasts"]
    values = [answer["speedup"]["value"] for answer in told]
    assert len(values) > 1
    assert values == sorted(values, reverse=True)
    assert main(["whatif", job]) == 0
    assert "What would help most" in capsys.readouterr().out


def test_a_question_without_evidence_is_answered_with_the_reason(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (answer,) = ask(capsys, job, "--pin", "on")["forecasts"]
    assert answer["speedup"]["type"] == "missing"
    assert main(["whatif", job, "--rarer", "checkpoint=2"]) == 0
    said = capsys.readouterr().out
    assert "cannot tell" in said
    assert "no checkpoint was seen" in said


def test_a_job_without_a_loader_has_no_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    none = Missing(reason="no DataLoader feeds the steps")
    monkeypatch.setattr("fuelline.pipeline.asked.measure_fixed", lambda _run_dir: (none, None))
    (answer,) = ask(capsys, str(tmp_path), "--workers", "2")["forecasts"]
    assert answer["speedup"] == {"type": "missing", "reason": "no DataLoader feeds the steps"}


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
    job: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["whatif", job, *words])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    said = capsys.readouterr().err
    assert words[0] in said
    assert words[1].split("=")[0] in said


def test_a_run_that_is_not_there_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "no-such-run", "--workers", "2"]) == 3
    assert "no-such-run" in capsys.readouterr().err
