"""What others wrote, decoded: whatever it holds, the answer is a value or one kind of error.

And encoded again, so that it can be printed.

A hundred thousand open brackets are a RecursionError to msgspec and json alike, a text that is no
UTF-8 a UnicodeDecodeError, a number without end an OverflowError or ValueError. To the reader of a
run, a pack or a trace they are one thing: content that is not what it should be.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fuelline.schema.names import clean_json

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_MOST_TEXT = 200
_MOST_PARTS = 32
"""Of a dotted key. Python's parser takes a time that grows with their square, 9 s for 80,000 of
them, and goes through those of a table's name for each line of the table."""
_LONG_KEY = re.compile(
    rf"""(?<![\w.\\-])(?:(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MOST_PARTS}}}"""
)


def decode_json(content: bytes | str, kind: type[_T]) -> _T:
    """JSON as a noun; raises msgspec.DecodeError for all that it is not."""
    return guard(lambda text: msgspec.json.decode(text, type=kind), content)


def encode_json(answer: object, *, is_indented: bool = True) -> str:
    """An answer as its reader may print it: names that others chose are in it."""
    content = msgspec.json.encode(answer)
    return clean_json((msgspec.json.format(content) if is_indented else content).decode())


def decode_toml(content: bytes, kind: type[_T]) -> _T:
    """The same for TOML."""
    text = guard(bytes.decode, content)
    if _LONG_KEY.search(text):
        raise msgspec.DecodeError(f"it has a key of more than {_MOST_PARTS} parts")
    return guard(lambda text: msgspec.toml.decode(text, type=kind), text)


def guard(decode: Callable[[Any], _T], content: Any) -> _T:
    """What a decoder makes of content; its errors are one kind: msgspec.DecodeError."""
    try:
        return decode(content)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except (UnicodeDecodeError, OverflowError, ValueError, MemoryError) as error:
        if isinstance(error, msgspec.DecodeError):
            raise
        raise msgspec.DecodeError(str(error)[:_MOST_TEXT]) from None
