"""Messages of ours: whole words within a terminal's width, one line in a pipe."""

import io

import pytest

from fuelline.cli.saying import say

WORDS = "The cache lies below a mount. " * 5 + "Look at /a/very/long/path-with-hyphens/" + "x" * 90


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, columns: int = 120) -> list[str]:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("COLUMNS", str(columns))
    say(WORDS)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(("columns", "widest"), [(60, 60), (80, 80), (300, 100)])
def test_a_terminal_gets_whole_words_within_its_columns(
    monkeypatch: pytest.MonkeyPatch, columns: int, widest: int
) -> None:
    lines = said(Terminal(), monkeypatch, columns)
    assert len(lines) > 1
    assert " ".join(lines) == f"fuelline: {WORDS}"
    assert all(len(line) <= widest or " " not in line for line in lines)


def test_a_pipe_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(io.StringIO(), monkeypatch) == [f"fuelline: {WORDS}"]
