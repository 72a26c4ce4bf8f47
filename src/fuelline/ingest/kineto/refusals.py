"""Why a file is not imported, and where in it: what the decoder says, in words for a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.ingest.unpack import say_byte
from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

TRUNCATED = "Input data was truncated"
"""What msgspec says when the text ends too early."""
_TRAILING = "trailing characters (byte "


def find_trailing(error: Exception) -> int | None:
    """Where the decoder found more than the array, counted from 1; None if that is not it."""
    return _find_byte(error) if _TRAILING in str(error) else None


def refuse_malformed(path: Path, start: int, error: Exception) -> InputError:
    """What begins at this byte is no JSON, or none of a trace."""
    place = start + max(0, _find_byte(error) - 1)
    return InputError(
        f"{path}: not a trace at {say_byte(path, place)} ({error}). Nothing was imported. Copy "
        "the file again, or record it again."
    )


def refuse_nested(path: Path, start: int) -> InputError:
    """Brackets within brackets."""
    return InputError(
        f"{path}: something after {say_byte(path, start)} is nested too deeply for a trace. "
        "Nothing was imported. Record the trace again."
    )


def refuse_number(path: Path, start: int, end: int, odd: Exception) -> InputError:
    """A time that is none."""
    return InputError(
        f"{path}: an event between byte {start} and {say_byte(path, end)} cannot be read: {odd}. "
        "Nothing was imported. Record the trace again, or repair that event."
    )


def refuse_empty(path: Path, end: int) -> InputError:
    """No event at all."""
    return InputError(
        f"{path} was read to its end at {say_byte(path, end)} and holds no event. Nothing was "
        "imported. Record it again, with the profiler's activities switched on."
    )


def _find_byte(error: Exception) -> int:
    _, _, after = str(error).partition("(byte ")
    digits = after.partition(")")[0]
    return int(digits) if digits.isdecimal() else 0
