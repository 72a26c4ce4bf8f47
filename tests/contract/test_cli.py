"""The command line is a contract: an option is added here on purpose or not at all."""

import argparse
import json
from pathlib import Path

import pytest

from fuelline.cli.parser import build_parser, separate_job

FROZEN = Path(__file__).with_name("cli_options.json")


def find_commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """By what is typed: `run`, `plan`, `plan serve`."""
    found = {}
    for group in (act for act in parser._actions if isinstance(act, argparse._SubParsersAction)):
        for name, command in group.choices.items():
            found[name] = command
            found |= {f"{name} {inner}": each for inner, each in find_commands(command).items()}
    return found


def find_options(parser: argparse.ArgumentParser) -> list[str]:
    """Options as they are typed; positional words in brackets."""
    found = []
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            found += action.option_strings or [f"[{action.dest}]"]
    return sorted(found)


def test_commands_and_options_are_the_frozen_ones() -> None:
    parser = build_parser()
    options = {"fuelline": find_options(parser)}
    options |= {name: find_options(command) for name, command in find_commands(parser).items()}
    assert options == json.loads(FROZEN.read_text())


def test_every_option_says_what_it_does_and_its_default() -> None:
    for command in find_commands(build_parser()).values():
        for action in command._actions:
            if action.dest not in ("help", "job") and action.dest != argparse.SUPPRESS:
                assert action.help, action
                assert "default" in action.help, action


@pytest.mark.parametrize("name", ["run", "tune", "feed"])
def test_a_module_to_run_is_seen_behind_every_option(name: str) -> None:
    parser = build_parser([name])
    for action in find_commands(parser)[name]._actions:
        for option in action.option_strings:
            words = [name, option] if action.nargs == 0 else [name, option, "1"]
            assert separate_job([*words, "-m", "pkg"], parser) == [*words, "--", "-m", "pkg"]


def test_a_command_that_starts_no_job_has_its_words_as_they_are() -> None:
    words = ["diagnose", "-m", "run", "-m"]
    assert separate_job(words, build_parser(words)) == words


def test_every_help_page_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = build_parser()
    pages = {"fuelline": parser, **find_commands(parser)}
    wide = [
        (name, line)
        for name, page in pages.items()
        for line in page.format_help().splitlines()
        if len(line) > 80
    ]
    assert wide == []


def test_every_command_is_described() -> None:
    for command in find_commands(build_parser()).values():
        assert command.description
