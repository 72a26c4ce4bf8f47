"""What we say beside the job's own output: on standard error, and marked as ours.

A terminal gets lines that end between words; a pipe gets one line a message, so that it can be
searched.
"""

from __future__ import annotations

import shutil
import sys

from fuelline.schema.names import clean

WIDEST = 80


def say(words: str) -> None:
    """A message; paths and commands in it are never cut."""
    text = f"fuelline: {clean(words)}"
    if sys.stderr.isatty():
        from textwrap import fill  # noqa: PLC0415 - a job need not wait for it

        width = min(WIDEST, shutil.get_terminal_size().columns)
        text = fill(text, width, break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr, flush=True)
