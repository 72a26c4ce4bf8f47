"""Keys by their names, however the terminal hands them over."""

from __future__ import annotations

import io
import os
import pty
import signal
from typing import TYPE_CHECKING

import pytest

from fuelline.cli.record.keyboard import Keyboard

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def keyboard() -> Iterator[tuple[Keyboard, int]]:
    master, slave = pty.openpty()
    with os.fdopen(slave, "r+b", buffering=0) as raw:
        with Keyboard(raw, io.StringIO()) as opened:  # type: ignore[arg-type]
            yield opened, master
        os.close(master)


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        (b"q", ["q"]),
        (b"swr", ["s", "w", "r"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\x1b[A\x1b", ["up", "escape"]),
        (b"\x1b[1;5Cq", ["\x1b[1;5C", "q"]),
        (b"\x1b\x1b", ["escape", "escape"]),
        ("ä?".encode(), ["\ufffd", "\ufffd", "?"]),
    ],
)
def test_what_is_typed_becomes_keys(
    keyboard: tuple[Keyboard, int], typed: bytes, names: list[str]
) -> None:
    opened, master = keyboard
    os.write(master, typed)
    assert [opened.read(5) for _ in names] == names
    assert opened.read(0) is None
    assert opened.signal is None


def test_a_terminal_that_goes_away_is_like_a_hangup() -> None:
    master, slave = pty.openpty()
    raw = os.fdopen(slave, "r+b", buffering=0)
    with raw, Keyboard(raw, io.StringIO()) as opened:  # type: ignore[arg-type]
        os.close(master)
        assert opened.read(5) is None
        assert opened.signal == signal.SIGHUP
