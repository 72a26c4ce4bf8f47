"""Cuts the text of a Chrome trace into header, pieces of its event array, and footer.

The array is cut at the separator between events, which is learnt from the first two; layouts
differ in white space only. A separator may also stand in a string or between nested objects: a
piece that does not decode is cut again by counting brackets, which is slow and always right. Where
the array ends is found by the decoder (the first byte that it does not expect).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from fuelline.ingest.unpack import TruncatedError, say_byte
from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE_BYTES = 256 * 1024
"""Decoded at a time: 1,000 events. Larger pieces leave the processor's cache, and the memory they
need is asked of the system again for each of them (bench/trace_import.py)."""
MOST_EVENT_BYTES = 64 * 1024 * 1024
"""An event, a header or a footer that is larger is not a profiler's."""

_MARK = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'["\\]')
_SEPARATOR = re.compile(rb"\}\s*,\s*\{")
_COMMA = re.compile(rb"\s*,")
_CLOSING = re.compile(rb"\s*\]")
_COLON_ARRAY = re.compile(rb"\s*:\s*(\S)")
_EVENT_KEY = re.compile(rb'\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:')
_NEXT = (
    "Nothing was imported. `fuelline import` reads Kineto and Chrome traces, see docs/import.md."
)


@dataclass(frozen=True)
class Piece:
    """Part of the event array: whole events with commas between them, no brackets around."""

    text: bytes
    start: int
    """Of the text in the unpacked file."""


class Splitter:
    """The unpacked text from front to back; header first, then pieces, then the footer."""

    def __init__(self, path: Path, blocks: Iterator[bytes]) -> None:
        self.path = path
        self._blocks = blocks
        self._buffer = b""
        self.start = 0
        """Where the buffer begins in the unpacked text."""
        self._is_over = False
        self._separator = b""
        self.is_array = False
        """The file is an array of events and nothing else; its closing bracket is optional."""

    def header(self) -> bytes:
        """Everything before the event array, as its own object."""
        while (found := _find_array(self._buffer)) is None:
            if self._is_over or len(self._buffer) > MOST_EVENT_BYTES:
                raise self._no_events()
            self._fill(max(PIECE_BYTES, 2 * len(self._buffer)))
        header = self._buffer[:found]
        self.is_array = not header.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        self._drop(found + 1)
        return b"{}" if self.is_array else header + b"null}"

    def next_piece(self) -> Piece | None:
        """Whole events, as many as fit; None once only the end of the array can be left."""
        while True:
            self._fill(PIECE_BYTES)
            if self._is_over or _CLOSING.match(self._buffer):
                return None
            cut = self._find_cut()
            if cut:
                return Piece(self._buffer[:cut], self.start)
            if len(self._buffer) > MOST_EVENT_BYTES:
                raise InputError(
                    f"{self.path}: the event at {self._say(self.start)} does not end within "
                    f"{MOST_EVENT_BYTES} bytes. {_NEXT}"
                )
            self._fill(2 * len(self._buffer))

    def take(self, piece: Piece) -> None:
        """The piece was good: go on behind it and the comma that follows, if one does."""
        self._drop(len(piece.text))
        comma = _COMMA.match(self._buffer)
        self._drop(comma.end() if comma else 0)

    def recut(self, piece: Piece) -> Piece | None:
        """The same piece, ended where brackets balance; None if it was, or nothing balances."""
        cut = find_last_event_end(piece.text)
        if not cut or cut == len(piece.text.rstrip()):
            return None
        return Piece(piece.text[:cut], piece.start)

    @property
    def left(self) -> bytes:
        """What was read and not taken yet."""
        return self._buffer

    @property
    def end(self) -> int:
        """How much of the unpacked text was read."""
        return self.start + len(self._buffer)

    def rest(self) -> Piece:
        """All that is left: the last events, the end of the array, the footer."""
        self._fill(MOST_EVENT_BYTES + 1)
        if not self._is_over:
            raise InputError(
                f"{self.path}: what follows the events at {self._say(self.start)} is larger than "
                f"{MOST_EVENT_BYTES} bytes. {_NEXT}"
            )
        return Piece(self._buffer, self.start)

    def _find_cut(self) -> int:
        """Behind the last event that is surely whole; 0 if there is none."""
        if not self._separator:
            end = _find_first_event_end(self._buffer)
            found = _SEPARATOR.match(self._buffer, end - 1) if end else None
            if found is None:
                return 0
            self._separator = found[0]
        at = len(self._buffer)
        while (at := self._buffer.rfind(self._separator, 0, at)) >= 0:
            if _EVENT_KEY.match(self._buffer, at + len(self._separator)):
                return at + 1
        return find_last_event_end(self._buffer)

    def _fill(self, size_bytes: int) -> None:
        if len(self._buffer) >= size_bytes or self._is_over:
            return
        parts = [self._buffer]
        held = len(self._buffer)
        while held < size_bytes:
            try:
                block = next(self._blocks, None)
            except TruncatedError:
                self._buffer = b"".join(parts)
                self._is_over = True
                raise
            if block is None:
                self._is_over = True
                break
            if held == 0:  # gigabytes of blanks are no reason to keep them
                self.start += len(block)
                block = block.lstrip()
                self.start -= len(block)
            parts.append(block)
            held += len(block)
        self._buffer = b"".join(parts)

    def _drop(self, size_bytes: int) -> None:
        self._buffer = self._buffer[size_bytes:]
        self.start += size_bytes

    def _say(self, at: int) -> str:
        return say_byte(self.path, at)

    def _no_events(self) -> InputError:
        head = self._buffer[:40].decode("utf-8", "replace")
        if self._is_over and _is_cut_short(self._buffer):
            return self.cut_short()
        return InputError(
            f"{self.path}: no array `traceEvents` up to {self._say(self.end)}; it begins with "
            f"{head!r}. {_NEXT}"
        )

    def cut_short(self) -> TruncatedError:
        """The file ends in the middle."""
        return TruncatedError(
            f"{self.path} was cut short: the text ends at {self._say(self.end)}, in the middle of "
            "the events. Nothing was imported. Copy the file again, or read what there is with "
            "`fuelline import --partial`."
        )


def _is_cut_short(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return "truncated" in str(error)
    return False


def _tokens(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Brackets and strings, each with where it ends; stops at a string that does not end.

    One expression for both would look for the end of such a string once for each quote in it.
    """
    at = 0
    while found := _MARK.search(text, at):
        at = _find_string_end(text, found.end()) if found[0] == b'"' else found.end()
        if not at:
            return
        yield text[found.start() : at], at


def _find_string_end(text: bytes, at: int) -> int:
    """Behind the closing quote; 0 if there is none."""
    while found := _IN_STRING.search(text, at):
        if found[0] == b'"':
            return found.end()
        at = found.end() + 1  # what is escaped does not count
    return 0


def _find_array(text: bytes) -> int | None:
    """Where the bracket of the event array is; None if it is not there yet."""
    depth = 0
    for word, end in _tokens(text):
        if word == b"[" and depth == 0:
            return end - 1
        if word in (b"{", b"["):
            depth += 1
        elif word in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and word == b'"traceEvents"':
            value = _COLON_ARRAY.match(text, end)
            if value is not None and value[1] == b"[":
                return value.start(1)
    return None


def _event_ends(text: bytes) -> Iterator[int]:
    """Behind each event of a piece, by counting brackets; stops where the array does."""
    depth = 0
    for word, end in _tokens(text):
        if word in (b"{", b"["):
            depth += 1
        elif word in (b"}", b"]"):
            depth -= 1
            if depth < 0:
                return
            if depth == 0:
                yield end


def _find_first_event_end(text: bytes) -> int:
    return next(_event_ends(text), 0)


def find_last_event_end(text: bytes) -> int:
    """Behind the last event that is whole; 0 if none is."""
    return max(_event_ends(text), default=0)
