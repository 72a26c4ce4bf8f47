"""Packets of a Perfetto trace to slices: begun, ended, each with its track, texts and arguments.

A slice begins with one packet and ends with another on the same track; on a track they nest. What
packets leave out is in the state of their sequence: texts by number, a default track, clocks that
count from the packet before.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fuelline.ingest.perfetto import messages
from fuelline.ingest.protobuf import WireError, read_varint, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from fuelline.ingest.protobuf import Buffer, Span

PACKET_TAG = 0x0A
"""Field 1 of a file, with a length."""
_BEGIN, _END = 1, 2
_CLEARED = 1
"""Of the flags of a sequence: what was said before holds no more."""
_MOST_UNPACKED = 1 << 28
"""Bytes of packed packets within one packet; Perfetto packs half a megabyte at a time."""
_MOST_OPEN = 4096
"""Slices within each other on one track; no program nests so deep."""


class TrackSlice(NamedTuple):
    """Something that lasted."""

    track: int
    start_ns: int
    end_ns: int
    name: str
    category: str
    said: Mapping[str, int | str]


@dataclass
class Track:
    """Where slices lie."""

    name: str = ""
    parent: int = 0
    pid: int | None = None
    tid: int | None = None
    process: str = ""


@dataclass
class _Writer:
    """What packets of one writer have said before."""

    categories: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    words: dict[int, str] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    track: int = 0
    clock: int = 0
    clocks: dict[int, tuple[int, bool, int]] = field(default_factory=dict)
    """Of clocks of its own: the last time, whether packets count from there, and the unit."""
    at_us: int = 0


@dataclass
class SliceReader:
    """The packets of one file, in order."""

    tracks: dict[int, Track] = field(default_factory=dict)
    unended: int = 0
    dropped: int = 0
    _sequences: dict[int, _Writer] = field(default_factory=dict)
    _open: dict[int, list[tuple[int, str, str, Mapping[str, int | str]]]] = field(
        default_factory=dict
    )

    def read(self, data: Buffer, end: int) -> Iterator[TrackSlice]:
        """Slices in the order in which they end."""
        for span in _list_packets(data, end):
            yield from self._packet(data, span, is_inner=False)
        self.unended = sum(len(stack) for stack in self._open.values())

    def _packet(self, data: Buffer, span: Span, *, is_inner: bool) -> Iterator[TrackSlice]:
        found = messages.PACKET.read(data, *span)
        at, clock, number, flags, event, interned, track, defaults, snapshot, packed, lost = found
        if packed is not None and not is_inner:
            yield from self._unpacked(data, packed)
            return
        if flags is not None and flags & _CLEARED:
            self._sequences.pop(number or 0, None)
        own = self._sequences.setdefault(number or 0, _Writer())
        self.dropped += bool(lost)
        if interned is not None:
            _learn(own, data, interned)
        if defaults is not None:
            _default(own, data, defaults)
        if snapshot is not None:
            _set_clocks(own, data, snapshot)
        if track is not None:
            self._describe(data, track)
        at_ns = None if at is None else _tell_time(own, at, clock or own.clock)
        if event is not None:
            yield from self._event(own, data, event, at_ns)

    def _unpacked(self, data: Buffer, span: Span) -> Iterator[TrackSlice]:
        inflater = zlib.decompressobj()
        try:
            plain = inflater.decompress(data[span[0] : span[1]], _MOST_UNPACKED)
        except zlib.error as error:
            raise WireError(span[0], f"packed packets are damaged ({error})") from None
        if inflater.unconsumed_tail:
            raise WireError(span[0], "packed packets unpack to more than 256 MB")
        try:
            for inner in _list_packets(plain, len(plain)):
                yield from self._packet(plain, inner, is_inner=True)
        except WireError as error:
            raise WireError(span[0], f"in packed packets: {error.what}") from None

    def _describe(self, data: Buffer, span: Span) -> None:
        uuid, name, static_name, process, thread, parent = messages.TRACK.read(data, *span)
        known = self.tracks.setdefault(uuid or 0, Track())
        known.name = text(data, name or static_name) or known.name
        known.parent = parent or known.parent
        if process is not None:
            pid, process_name = messages.PROCESS.read(data, *process)
            known.pid, known.process = pid, text(data, process_name)
        if thread is not None:
            known.pid, known.tid, name = messages.THREAD.read(data, *thread)
            known.name = text(data, name) or known.name

    def _event(
        self, own: _Writer, data: Buffer, span: Span, at_ns: int | None
    ) -> Iterator[TrackSlice]:
        found = messages.EVENT.read(data, *span)
        kind, track, name_iid, name, category_iid, categories, said, delta_us, absolute_us = found
        if absolute_us is not None:
            at_ns = absolute_us * 1000
        elif delta_us is not None:
            own.at_us += delta_us
            at_ns = own.at_us * 1000
        if at_ns is None:
            return
        track = own.track if track is None else track
        stack = self._open.setdefault(track, [])
        if kind == _BEGIN and len(stack) < _MOST_OPEN:
            named = text(data, name) if name is not None else own.names.get(name_iid or 0, "")
            category = own.categories.get(category_iid or 0, "")
            if categories:
                category = text(data, categories[0])
            stack.append((at_ns, named, category, _arguments(own, data, said)))
        elif kind == _END and stack:
            start_ns, named, category, told = stack.pop()
            yield TrackSlice(track, start_ns, at_ns, named, category, told)


def _list_packets(data: Buffer, end: int) -> Iterator[Span]:
    """One by one: a file may hold millions."""
    at = 0
    while at < end:
        tag_at = at
        tag, at = read_varint(data, at, end)
        if tag != PACKET_TAG:
            raise WireError(tag_at, f"a packet was expected, not field {tag >> 3}")
        size, at = read_varint(data, at, end)
        if size > end - at:
            raise WireError(tag_at, f"a packet claims {size} bytes, but only {end - at} follow")
        yield at, at + size
        at += size


def _learn(own: _Writer, data: Buffer, span: Span) -> None:
    tables = (own.categories, own.names, own.words, own.strings)
    for table, entries in zip(tables, messages.INTERNED.read(data, *span), strict=True):
        for entry in entries:
            iid, words = messages.TEXT.read(data, *entry)
            table[iid or 0] = text(data, words)


def _default(own: _Writer, data: Buffer, span: Span) -> None:
    clock, event = messages.DEFAULTS.read(data, *span)
    own.clock = clock or own.clock
    if event is not None:
        (track,) = messages.EVENT_DEFAULTS.read(data, *event)
        own.track = track or own.track


def _set_clocks(own: _Writer, data: Buffer, span: Span) -> None:
    (clocks,) = messages.SNAPSHOT.read(data, *span)
    for each in clocks:
        number, at, is_incremental, unit_ns = messages.CLOCK.read(data, *each)
        own.clocks[number or 0] = (at or 0, bool(is_incremental), unit_ns or 1)


def _tell_time(own: _Writer, at: int, clock: int) -> int:
    """Nanoseconds of a packet's time; clocks without a snapshot count them."""
    if clock not in own.clocks or clock < _FIRST_OWN_CLOCK:
        return at
    last, is_incremental, unit_ns = own.clocks[clock]
    if is_incremental:
        at += last
        own.clocks[clock] = (at, is_incremental, unit_ns)
    return at * unit_ns


_FIRST_OWN_CLOCK = 64
"""Clocks below are the system's, in nanoseconds (builtin_clock.proto)."""


def _arguments(own: _Writer, data: Buffer, spans: Sequence[Span]) -> Mapping[str, int | str]:
    said: dict[str, int | str] = {}
    for span in spans:
        name_iid, name, unsigned, signed, string, string_iid = _annotation(data, span)
        word = text(data, name) if name is not None else own.words.get(name_iid or 0, "")
        if string is not None:
            said[word] = text(data, string)
        elif string_iid is not None:
            said[word] = own.strings.get(string_iid, "")
        elif (number := unsigned if unsigned is not None else signed) is not None:
            said[word] = number
    return said


def _annotation(data: Buffer, span: Span) -> list[Any]:
    return messages.ANNOTATION.read(data, *span)
