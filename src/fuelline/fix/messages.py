"""A line for the user from inside the job. Standard library only."""

from __future__ import annotations

import os
import sys

__all__ = ["say"]


def say(line: str) -> None:
    """Write to standard error as it was at the start; where there is none, nothing is written.

    `sys.stderr` may be closed, or an object of the job's. And if there was no standard error at the
    start, number 2 may be a file of the job's by now.
    """
    try:
        number = sys.__stderr__.fileno()  # type: ignore[union-attr]  # None: as said below
        os.write(number, f"fuelline: {line}\n".encode("utf-8", "backslashreplace"))
    except (AttributeError, OSError, ValueError):
        return  # None, not writable, closed
