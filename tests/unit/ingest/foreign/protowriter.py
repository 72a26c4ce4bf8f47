"""Protocol buffers written and read the naive way, to test our reader against."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def delimited(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def entry(field: int, key: int, value: bytes) -> bytes:
    return delimited(field, number(1, key) + delimited(2, value))


def walk(data: bytes) -> dict[int, list[int | bytes]]:
    """All fields of a message, byte by byte."""
    fields: dict[int, list[int | bytes]] = {}
    at = 0

    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = take()
        if tag & 7 == 0:
            fields.setdefault(tag >> 3, []).append(take())
        else:
            size = {1: 8, 5: 4}.get(tag & 7) or take()
            fields.setdefault(tag >> 3, []).append(data[at : at + size])
            at += size
    return fields
