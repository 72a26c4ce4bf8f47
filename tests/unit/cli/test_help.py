"""Help by command, groups, words that are no commands, and completion."""

from __future__ import annotations

import subprocess

import pytest

from fuelline.cli import main
from fuelline.cli.parser import COMMANDS, GROUPS, build_parser

Capture = pytest.CaptureFixture[str]


def test_help_shows_the_page_of_a_command(capsys: Capture) -> None:
    assert main(["help", "plan", "serve"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("usage: fuelline plan serve")
    with pytest.raises(SystemExit):
        main(["plan", "serve", "--help"])
    assert capsys.readouterr().out == page


def test_help_without_a_command_lists_all_of_them_in_groups(capsys: Capture) -> None:
    assert main(["help"]) == 0
    page = capsys.readouterr().out
    assert page == build_parser().format_help()
    lines = page.splitlines()
    starts = [lines.index(f"{title}:") for title in GROUPS]
    assert starts == sorted(starts)
    for name in COMMANDS:
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1, name


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["diagnos"], "`fuelline diagnose`"),
        (["train.py"], "`fuelline run train.py`"),
        (["xyzzy"], "`fuelline help`"),
        (["plan", "srve", "x"], "`fuelline plan serve`"),
        (["help", "whatf"], "`fuelline whatif`"),
        (["help", "plan", "trian"], "`fuelline plan train`"),
        (["diagnose", "--jsno"], "--json"),
        (["plan", "serve", "llama", "--chp=h100"], "--chip"),
        (["run", "--fxi", "train.py"], "--fix"),
        (["runs", "extra"], "`fuelline help runs`"),
        (["diagnose", "--qqqqqq"], "`fuelline help diagnose`"),
    ],
)
def test_a_word_that_is_none_of_ours_gets_the_nearest_that_is(
    capsys: Capture, words: list[str], answer: str
) -> None:
    assert main(words) == 2
    message = capsys.readouterr().err
    assert answer in message
    assert "Nothing was done" in message


def test_options_of_a_job_are_its_own(capsys: Capture) -> None:
    assert main(["run", "--run-dir", "/proc", "sh", "--jsno"]) == 2
    assert "/proc already exists" in capsys.readouterr().err


def test_bash_takes_the_completion_and_completes_a_command(capsys: Capture) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    ask = script + "COMP_WORDS=(fuelline dia); COMP_CWORD=1; _shtab_fuelline; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["diagnose"]
    assert main(["completion", "zsh"]) == 0
    assert "#compdef fuelline" in capsys.readouterr().out
