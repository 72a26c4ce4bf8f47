"""Follows one spool while it grows: reads what was added since the last look, and nothing twice.

The first look begins some seconds before the end of the file; what lies before that is only
counted, in slices that the caller's budget pays for: a run of many hours is on the screen at once.
The file is read with pread, not mapped: one that shrinks under a mapping would kill us. Records are
written in order, so nothing that was passed is looked at again.
What must stay true: every record is returned or counted once, wherever the first look began.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING

from fuelline.ingest.recording.spool import (
    LONGEST_NS,
    NOTED_BYTES,
    SpoolHeader,
    Texts,
    check_size,
    read_header,
)
from fuelline.schema import wire
from fuelline.schema.diagnosis.live import LiveEvent, SourceWorker
from fuelline.schema.files import open_below
from fuelline.schema.wire import Flag, Kind

if TYPE_CHECKING:
    from pathlib import Path

CHUNK_BYTES = 16 * 1024
"""Read at a time at the growing end."""
FIRST_LOOK_BYTES = 1024 * 1024
"""A first look sees at most this much of the end: 16,384 records."""
FIRST_LOOK_NS = 15 * 10**9
SLICE_BYTES = 1024 * 1024

_SIZE = wire.RECORD_BYTES
_KIND_AT = _SIZE - 2
"""Low byte of a record's kind; the high byte is 0 in all that we write."""
_FLAGS_AT = _SIZE - 4
_FIELD_A_AT = 16
_EVENT = struct.Struct("<QQqqq8xqIHH")
"""`wire.RECORD` without what a `LiveEvent` does not have: d."""
_name_fields = partial(tuple.__new__, LiveEvent)
"""As `LiveEvent._make`, in a third of the time."""
_KINDS = frozenset(int(kind) for kind in Kind)
_EVENTS = _KINDS - {int(Kind.TEXT), int(Kind.MARK)}
"""Not the marks on a device: the host did nothing while one was waiting to be passed."""
_TIMELESS = frozenset({0, int(Kind.TEXT), int(Kind.BLINDSPOT), int(Kind.MARK)})
"""Records that are sound without a time, or whose time is of no interest."""
_NOTED = (Kind.WORKER, Kind.TEXT, Kind.BLINDSPOT, Kind.RANK)
"""Kinds that say something for the rest of the run."""
_NOTES = re.compile(b"[" + b"".join(re.escape(bytes([kind])) for kind in _NOTED) + b"]")
_IS_STEP = bytes(int(value == Kind.STEP) for value in range(256))
_IS_WAIT = bytes(int(value == Kind.WAIT) for value in range(256))
_IS_BATCH = bytes(int(not value & (Flag.END | Flag.ERROR)) for value in range(256))
_KNOWN = bytes([0, *sorted(_KINDS)])


@dataclass
class Notes:
    """What the rare records of a look say."""

    workers: list[SourceWorker] = field(default_factory=list)
    rank: int | None = None
    blindspots: list[str] = field(default_factory=list)
    """As JSON."""


@dataclass
class SpoolRead:
    """What one look at one spool found."""

    header: SpoolHeader
    events: list[LiveEvent] = field(default_factory=list)
    past_steps: Counter[int] = field(default_factory=Counter)
    past_batches: int = 0
    notes: Notes = field(default_factory=Notes)
    counted_bytes: int = 0
    """Of the past; the last slice may go beyond the budget."""


class SpoolTail:
    """One spool, from one look to the next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        """Records that cannot have been written by us."""
        self._at = 0
        self._past = (wire.HEADER_BYTES, wire.HEADER_BYTES)
        self._texts = Texts()
        self._unread: dict[int, None] = {}
        """Texts of blindspots that are not whole yet."""
        self._read: set[int] = set()

    @property
    def is_counted(self) -> bool:
        """Whether everything before the first look has been counted."""
        return self._past[0] >= self._past[1]

    def look(self, budget_bytes: int = SLICE_BYTES) -> SpoolRead | None:
        """What is new; None while the header is not written. Raises OSError and InputError."""
        fd = open_below(self.path.parent, self.path.name)
        try:
            check_size(fd, self.path)
            header = read_header(os.pread(fd, NOTED_BYTES, 0), self.path)
            if header is None:
                return None
            look = SpoolRead(header)
            if not self._at:
                self._begin(fd)
            self._follow(fd, look)
            self._count_past(fd, look, budget_bytes)
        finally:
            os.close(fd)
        self._read_texts(look.notes)
        return look

    def _begin(self, fd: int) -> None:
        """Find where the last seconds begin; what lies before is the past."""
        size = os.fstat(fd).st_size
        start = max(wire.HEADER_BYTES, _round_down(size - FIRST_LOOK_BYTES))
        body = _whole_records(os.pread(fd, size - start, start)) if size > start else b""
        used = len(body[_KIND_AT::_SIZE].rstrip(b"\0")) * _SIZE
        starts_ns = memoryview(body)[:used].cast("Q")[:: _SIZE // 8]
        if len(starts_ns):
            # Nearly in order; a text among them only moves the border, and either side is read.
            start += _SIZE * bisect_left(starts_ns, starts_ns[-1] - FIRST_LOOK_NS)
        else:
            start = wire.HEADER_BYTES
        self._at = start
        self._past = (wire.HEADER_BYTES, start)

    def _follow(self, fd: int, look: SpoolRead) -> None:
        while True:
            body = _whole_records(os.pread(fd, CHUNK_BYTES, self._at))
            kinds = body[_KIND_AT::_SIZE].rstrip(b"\0")
            if not kinds:
                return
            self._take(body[: len(kinds) * _SIZE], kinds, look)
            self._at += len(kinds) * _SIZE
            if len(kinds) * _SIZE < len(body):
                return

    def _take(self, body: bytes, kinds: bytes, look: SpoolRead) -> None:
        for fields in _EVENT.iter_unpack(body):
            start_ns, dur_ns, _, _, _, _, _, _, kind = fields
            if kind in _EVENTS and dur_ns <= LONGEST_NS and start_ns > 0:
                look.events.append(_name_fields(fields))
            elif kind not in _TIMELESS:
                self.damaged += 1
        self._note(body, kinds, look.notes)

    def _count_past(self, fd: int, look: SpoolRead, budget_bytes: int) -> None:
        at, end = self._past
        while at < end and look.counted_bytes < budget_bytes:
            body = _whole_records(os.pread(fd, min(SLICE_BYTES, end - at), at))
            if not body:  # cut short since
                at = end
                break
            self._count(body, look)
            look.counted_bytes += len(body)
            at += len(body)
        self._past = (at, end)

    def _count(self, body: bytes, look: SpoolRead) -> None:
        """Count steps and batches without a loop in Python: 15 ns a record."""
        kinds = body[_KIND_AT::_SIZE]
        ids = memoryview(body).cast("H")[_FIELD_A_AT // 2 :: _SIZE // 2].tolist()
        look.past_steps.update(compress(ids, kinds.translate(_IS_STEP)))
        flags = body[_FLAGS_AT::_SIZE].translate(_IS_BATCH)
        look.past_batches += sum(compress(flags, kinds.translate(_IS_WAIT)))
        self.damaged += len(kinds.translate(None, _KNOWN))
        self._note(body, kinds, look.notes)

    def _note(self, body: bytes, kinds: bytes, notes: Notes) -> None:
        for found in _NOTES.finditer(kinds):
            offset = found.start() * _SIZE
            _, _, a, b, c, *_, kind = wire.RECORD.unpack_from(body, offset)
            if kind == Kind.TEXT:
                self._texts.add(body, offset)
            elif kind == Kind.WORKER:
                notes.workers.append(SourceWorker(source_id=a, worker_id=b, pid=c))
            elif kind == Kind.RANK:
                notes.rank = a
            elif a not in self._read:
                self._unread[a] = None

    def _read_texts(self, notes: Notes) -> None:
        """Give out the notes whose text is whole by now, once; it may lie in another slice."""
        for text_id in list(self._unread):
            text = self._texts.find(text_id)
            if text is not None:
                del self._unread[text_id]
                self._read.add(text_id)
                notes.blindspots.append(text)


def _round_down(offset: int) -> int:
    """To the begin of a record."""
    return offset - (offset - wire.HEADER_BYTES) % _SIZE


def _whole_records(chunk: bytes) -> bytes:
    return chunk[: len(chunk) // _SIZE * _SIZE]
