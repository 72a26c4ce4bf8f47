"""The observer's journal as bytes: frames in, rows out. Pure functions, no files.

A frame is `<u32 length><u32 crc32>` followed by `length` bytes of MessagePack, an array of rows
(`samples.Row`). What must stay true: any prefix of a journal decodes to a prefix of its rows, and
damage in the middle costs the frames it touches, never the ones behind them. Both kinds of loss
are counted, so that a reader can say what is missing.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from fuelline.schema.foreign import guard
from fuelline.schema.run.samples import Row

HEADER = struct.Struct("<II")
MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Longer frames are never written; a longer length is damage. One second of rows is some 10 kB."""

_TIMES_OVER = 8
"""Bytes summed up for each byte of a journal at most; a whole one takes one."""
_MOST_GUESSES = 2_000_000
_ARRAY_LEAD = re.compile(rb"[\x90-\x9f\xdc\xdd]")
"""First bytes of a MessagePack array: a cheap test before a checksum is spent on a guess."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Row])


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read from a journal, and what could not."""

    rows: list[Row]
    damaged: int
    """Stretches in the middle whose checksum or content is wrong; 0 in an intact journal."""
    torn_bytes: int
    """Bytes of a last frame that was cut off; more than 0 when the observer was killed."""


def encode_frame(rows: Sequence[Row]) -> bytes:
    """One frame with these rows."""
    payload = _encoder.encode(rows)
    return HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def decode_frames(journal: bytes) -> Decoded:
    """All rows of a journal that are whole; never raises on damaged input."""
    pieces = list(decode_pieces([journal], len(journal)))
    return Decoded(
        rows=[row for piece in pieces for row in piece.rows],
        damaged=sum(piece.damaged for piece in pieces),
        torn_bytes=pieces[-1].torn_bytes,
    )


def decode_pieces(pieces: Iterable[bytes], size_bytes: int) -> Iterator[Decoded]:
    """The same of a journal that comes in pieces, which may end anywhere: one `Decoded` for each.

    A last one says how it ended. The memory that this takes is that of a piece and a frame.
    """
    search = _Search(size_bytes)
    rest, is_damage = b"", False
    for piece in chain(pieces, [None]):
        journal, offset, damaged = rest + (piece or b""), 0, 0
        rows: list[Row] = []
        # What lacks its end is not searched before that came: every frame that a piece cuts does.
        while piece is None or is_damage or not _is_cut_off(journal, offset):
            start = search.find(journal, offset)
            if start is None:
                break
            end = _frame_end(journal, start)
            batch = _decode_payload(journal[start + HEADER.size : end])
            damaged += (start > offset and not is_damage) + (batch is None)
            rows += batch or []
            offset, is_damage = end, False
        # A frame may end in the next piece, unless it would have to be longer than any.
        begins = max(offset, len(journal) - MAX_FRAME_BYTES - HEADER.size)
        damaged += begins > offset and not is_damage
        rest, is_damage = journal[begins:], is_damage or begins > offset
        torn = 0
        if piece is None and rest and not is_damage:
            torn = len(rest) if _is_cut_off(rest, 0) else 0
            damaged += not torn
        yield Decoded(rows=rows, damaged=damaged, torn_bytes=torn)


class _Search:
    """Looks for frames; what it may spend on wrong guesses is bounded.

    Where every byte looks like the beginning of a long frame, each would be summed up: hours.
    """

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = _TIMES_OVER * size_bytes + 16 * MAX_FRAME_BYTES
        self._left_guesses = _MOST_GUESSES

    def find(self, journal: bytes, offset: int) -> int | None:
        """The first place at or after `offset` where a frame with a right checksum begins."""
        if self._left_bytes < 0 or self._left_guesses < 0:
            return None
        for found in _ARRAY_LEAD.finditer(journal, offset + HEADER.size):
            at = found.start() - HEADER.size
            if self._is_frame(journal, at):
                return at
            self._left_guesses -= 1
            if self._left_bytes < 0 or self._left_guesses < 0:
                return None
        return None

    def _is_frame(self, journal: bytes, offset: int) -> bool:
        length, checksum = map(int, HEADER.unpack_from(journal, offset))
        end = offset + HEADER.size + length
        if not 0 < length <= MAX_FRAME_BYTES or end > len(journal):
            return False
        self._left_bytes -= length
        return zlib.crc32(memoryview(journal)[offset + HEADER.size : end]) == checksum


def _frame_end(journal: bytes, offset: int) -> int:
    length, _ = HEADER.unpack_from(journal, offset)
    return offset + HEADER.size + int(length)


def _is_cut_off(journal: bytes, offset: int) -> bool:
    """Whether the rest is the beginning of a frame whose end was never written."""
    if len(journal) - offset < HEADER.size:
        return True
    length, _ = HEADER.unpack_from(journal, offset)
    return int(length) <= MAX_FRAME_BYTES and _frame_end(journal, offset) > len(journal)


def _decode_payload(payload: bytes) -> list[Row] | None:
    """The rows, or None for a whole frame that we do not understand (a newer row, say)."""
    try:
        return guard(_decoder.decode, payload)
    except msgspec.DecodeError:
        return None
