"""Messages of ours: whole words within a terminal's width, one line in a pipe."""

import io

import pytest

from fuelline.cli.saying import say

WORDS = "The cache lies below a mount. " * 5 + "Look at /a/very/long/path-with-hyphens/" + "x" * 90


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("COLUMNS", "120")
    say(WORDS)
    return stream.getvalue().splitlines()


def test_a_terminal_gets_whole_words_within_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(Terminal(), monkeypatch)
    assert len(lines) > 1
    assert " ".join(lines) == f"fuelline: {WORDS}"
    assert all(len(line) <= 80 or " " not in line for line in lines)


def test_a_pipe_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(io.StringIO(), monkeypatch) == [f"fuelline: {WORDS}"]
