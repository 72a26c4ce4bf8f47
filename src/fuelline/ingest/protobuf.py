"""Protocol buffers without a library: a table of fields in, values out, nothing built in between.

A message is described by a `Message`: field number to slot and kind. Reading one gives a list with
one value a slot; messages inside it stay spans of the buffer until somebody asks for them, so a
file costs the memory of the rows that are kept, not of its tree. Depth is the depth of the tables,
never of the input. Anything that is not well formed raises `WireError` with its byte offset.

Encoding: https://protobuf.dev/programming-guides/encoding (varints, fixed64, length-delimited,
fixed32; groups have been deprecated since proto2 and occur in no message that we read).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from mmap import mmap
from typing import Any

Buffer = bytes | mmap
Span = tuple[int, int]
"""Start and end of a message, a text or bytes inside the buffer."""

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_MOST_SHIFT = 63
"""Ten bytes of seven bits hold 64 bits; an eleventh is damage."""
_SIGN = 1 << 63
_WRAP = 1 << 64
_MORE = 0x80
"""In a byte of a number: another one follows."""
_UNREAD = (-1, -1, False)
_DOUBLE = struct.Struct("<d")


class WireError(ValueError):
    """The bytes are no protocol buffer, or not this one."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(f"byte {at}: {what}")
        self.at = at
        self.what = what


class FieldKind(IntEnum):
    """How a field is written and what it becomes."""

    INT = 0
    """A signed number of up to 64 bits."""
    DOUBLE = 1
    SPAN = 2
    """Text, bytes or a message; stays a span."""
    SPANS = 3
    """The same, repeated: a list of spans."""


_WIRES = {
    FieldKind.INT: _VARINT,
    FieldKind.DOUBLE: _FIXED64,
    FieldKind.SPAN: _DELIMITED,
    FieldKind.SPANS: _DELIMITED,
}


@dataclass(frozen=True)
class Message:
    """The fields of a message that are read; all others are skipped over."""

    name: str
    fields: tuple[tuple[int, str, FieldKind], ...]
    """Number, name and kind of each."""
    slots: dict[int, tuple[int, int, bool]] = field(init=False)
    """Number to place in the list of values, wire type, and whether it is repeated."""

    def __post_init__(self) -> None:
        slots = {
            number: (slot, _WIRES[kind], kind is FieldKind.SPANS)
            for slot, (number, _, kind) in enumerate(self.fields)
        }
        object.__setattr__(self, "slots", slots)

    def read(self, data: Buffer, start: int, end: int, base: int = 0) -> list[Any]:
        """Values in the order of `fields`; None or an empty list where the field is absent.

        `base` is where `data` lies in its file: for the offsets in errors.
        """
        values: list[Any] = [[] if kind is FieldKind.SPANS else None for _, _, kind in self.fields]
        slots = self.slots
        at = start
        while at < end:
            tag_at = at
            tag, at = read_varint(data, at, end, base)
            wire = tag & 7
            slot, expected, repeated = slots.get(tag >> 3, _UNREAD)
            if wire != expected and slot >= 0:
                raise WireError(
                    base + tag_at,
                    f"field {tag >> 3} of {self.name} has wire type {wire}, not {expected}",
                )
            if wire == _VARINT:
                value, at = read_varint(data, at, end, base)
                if slot >= 0:
                    values[slot] = value - _WRAP if value >= _SIGN else value
            elif wire == _DELIMITED:
                size, at = read_varint(data, at, end, base)
                if size > end - at:
                    raise WireError(
                        base + tag_at,
                        f"a field of {self.name} claims {size} bytes, but only {end - at} follow",
                    )
                if repeated:
                    values[slot].append((at, at + size))
                elif slot >= 0:
                    values[slot] = (at, at + size)
                at += size
            else:
                size = _fixed_size(wire, end - at, base + tag_at)
                if slot >= 0:
                    (values[slot],) = _DOUBLE.unpack_from(data, at)
                at += size
        return values


def find_whole_end(data: Buffer, end: int) -> int:
    """Behind the last field of a message that is all there; the whole message if it is well formed.

    Only for messages whose fields are length-delimited; another field counts as damage.
    """
    at = whole = 0
    try:
        while at < end:
            tag, at = read_varint(data, at, end)
            size, at = read_varint(data, at, end)
            if tag & 7 != _DELIMITED or size > end - at:
                break
            at += size
            whole = at
    except WireError:
        return whole
    return whole


def read_varint(data: Buffer, at: int, end: int, base: int = 0) -> tuple[int, int]:
    """A number and where the next byte is."""
    if at < end and data[at] < _MORE:
        return data[at], at + 1
    start, value, shift = at, 0, 0
    while at < end:
        byte = data[at]
        at += 1
        if byte < _MORE:
            return (value | byte << shift) & (_WRAP - 1), at
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _MOST_SHIFT:
            raise WireError(base + start, "a number is longer than ten bytes")
    raise WireError(base + start, "the data ends inside a number")


def _fixed_size(wire: int, left: int, at: int) -> int:
    """Width of a number that is not a varint."""
    if wire not in (_FIXED64, _FIXED32):
        raise WireError(at, f"wire type {wire} does not exist")
    size = 8 if wire == _FIXED64 else 4
    if size > left:
        raise WireError(at, f"a number needs {size} bytes, but only {left} follow")
    return size


def text(data: Buffer, span: Span | None) -> str:
    """A text; bytes that are not UTF-8 are shown as escapes."""
    return "" if span is None else data[span[0] : span[1]].decode("utf-8", "backslashreplace")
