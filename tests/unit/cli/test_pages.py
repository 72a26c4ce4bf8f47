"""`--html`: what is refused before anything is computed, and what is said afterwards."""

from pathlib import Path

import pytest

from fuelline.cli import main

Capture = pytest.CaptureFixture[str]
PLAN = ["plan", "serve", "llama-3.1-8b", "--chip", "h100"]


def test_a_plan_is_a_page_as_well(tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "plan.html"
    assert main([*PLAN, "--html", str(page)]) == 0
    assert f"Page written to {page}" in capsys.readouterr().out
    assert page.read_text().startswith('<!doctype html>\n<html lang="en">')


def test_beside_json_the_place_is_said_on_the_standard_error(
    tmp_path: Path, capsys: Capture
) -> None:
    assert main([*PLAN, "--json", "--html", str(tmp_path / "plan.html")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("{")
    assert "Page written to" in said.err


def test_a_page_replaces_a_page_and_nothing_else(tmp_path: Path, capsys: Capture) -> None:
    page, letter = tmp_path / "plan.html", tmp_path / "letter.html"
    letter.write_text("<html>somebody's work")
    assert main([*PLAN, "--html", str(page)]) == 0
    assert main([*PLAN, "--html", str(page)]) == 0
    assert main([*PLAN, "--html", str(letter)]) == 2
    assert "was not written by this command" in capsys.readouterr().err
    assert letter.read_text() == "<html>somebody's work"


@pytest.mark.parametrize("command", [PLAN, ["diagnose"], ["compare", "a", "b"], ["run"]])
def test_another_ending_is_refused_before_anything_is_done(
    command: list[str], tmp_path: Path, capsys: Capture
) -> None:
    job = tmp_path / "job.py"
    job.write_text("raise SystemExit('it was started')")
    words = [*command, "--html", str(tmp_path / "report.pdf")]
    assert main([*words, str(job)] if command == ["run"] else words) == 2
    assert "must end in .html" in capsys.readouterr().err
