"""What we say beside the job's own output: on standard error, and marked as ours.

A terminal gets lines that end between words; a pipe gets one line a message, so that it can be
searched. Where standard error is closed, full or a pipe that nobody reads, nothing is said: that
must not change how a job's recorder ends.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.schema.names import clean

if TYPE_CHECKING:
    from typing import TextIO

WIDEST = 100
"""As the report's text: beyond this the eye loses the next line."""


def say(words: str) -> None:
    """A message; paths and commands in it are never cut."""
    text = f"fuelline: {clean(words)}"
    if sys.stderr.isatty():
        from textwrap import fill  # noqa: PLC0415 - a job need not wait for it

        width = min(WIDEST, shutil.get_terminal_size().columns)
        text = fill(text, width, break_long_words=False, break_on_hyphens=False)
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = _nowhere()  # Python would fail with code 120 over what is left in the old one


class ProgressLine:
    """How far something is: one line that is written over on a terminal, else a line each time."""

    def __init__(self) -> None:
        self._is_open = False

    def show(self, words: str) -> None:
        """In place of what was shown before."""
        if not sys.stderr.isatty():
            say(words)
            return
        width = shutil.get_terminal_size().columns
        self._write(f"\r\033[K{f'fuelline: {clean(words)}'[: width - 1]}")
        self._is_open = True

    def end(self) -> None:
        """Nothing more comes."""
        if self._is_open:
            self._write("\r\033[K")
            self._is_open = False

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            sys.stderr = _nowhere()


def open_streams() -> None:
    """Where a stream was closed (`2>&-`) Python has None; what we write there goes nowhere.

    The descriptor may get the number of the closed one, but no child inherits it.
    """
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()


def flush_streams() -> None:
    """Write what is left to be written; what cannot be is given up."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = _nowhere()
    try:
        sys.stderr.flush()
    except OSError:
        sys.stderr = _nowhere()


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
