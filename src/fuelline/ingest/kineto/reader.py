"""The importer of Kineto's JSON: pieces of the file in, parts of tables out, in bounded memory.

Each piece is read, bent into columns and forgotten, by the compiled scanner where there is one and
by readers in Python where there is none or where it gives up; both make the same tables. What a
file says about itself may stand before or behind its events.

Also here: what a Kineto file says about itself (rank, world, chips, what the profiler was asked
for), and why a file is not imported and where in it, in words for a user.
"""

from __future__ import annotations

import gc
import re
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from fuelline.ingest.importer import Imported
from fuelline.ingest.kineto.decode import Decoder
from fuelline.ingest.kineto.events import mend
from fuelline.ingest.kineto.merged import MergedDecoder, MergedTables, is_merged
from fuelline.ingest.kineto.numbers import OddNumberError
from fuelline.ingest.kineto.pairs import Pairs
from fuelline.ingest.kineto.scan import find_scan
from fuelline.ingest.kineto.scan_state import ScanState
from fuelline.ingest.kineto.split import Piece, Splitter, find_last_event_end
from fuelline.ingest.kineto.tables import TraceTables
from fuelline.ingest.unpack import TruncatedError, read_blocks, say_byte
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import ChipFacts, Quality, RankFacts, SourceFacts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.ingest.importer import PartWriter
    from fuelline.ingest.kineto.decode import Batch
    from fuelline.ingest.kineto.scan import Scan


_KEYS = (
    *(b'"traceEvents"', b'"displayTimeUnit"', b'"systemTraceEvents"', b'"otherData"'),
    *(b'"stackFrames"', b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"'),
)
"""What an object may begin with if its events come late: those of Chrome's Trace Event Format, and
those of Kineto."""


_PLANE = re.compile(rb'"name"\s*:\s*"/device:[A-Z]+:\d+')
"""The name of a process in XProf's Chrome traces (xla/tsl/profiler/utils/xplane_schema.h)."""

_TRUNCATED = "Input data was truncated"
"""What msgspec says when the text ends too early."""
_TRAILING = "trailing characters (byte "


class Kineto:
    """Kineto and Chrome traces."""

    format = "kineto"

    def recognises(self, head: bytes) -> bool:
        """An object with a key of such files, or an array of objects with a phase."""
        text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        if text.startswith(b"{"):
            return any(key in head for key in _KEYS)
        return text.startswith(b"[") and b'"ph"' in head

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """All of a file; see `Importer`."""
        was_on = gc.isenabled()
        gc.disable()  # structs cannot form cycles, and there are millions of them
        try:
            return TraceReading(path, rank, writer, partial=partial, advance=advance).run()
        finally:
            if was_on:
                gc.enable()


class EventDecoder(Protocol):
    """Text in, events out."""

    def decode(self, text: bytes) -> Batch:
        """Raises msgspec's DecodeError if the text is no array of JSON."""
        ...


class EventTables(Protocol):
    """Events in, parts of tables out."""

    since: int

    def add(self, batch: Batch, piece: Piece) -> None:
        """The events of a piece."""
        ...

    def finish(self) -> None:
        """There are no more."""
        ...


Dialect = tuple[EventDecoder, EventTables]
"""How another profiler's events in the same format are read."""


class TraceReading:
    """One file on its way into tables."""

    def __init__(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
        dialect: Dialect | None = None,
    ) -> None:
        self.path = path
        self.rank = rank
        self.partial = partial
        self.splitter = Splitter(path, read_blocks(path, advance))
        self.book = ScanState()
        self.scan: Scan | None = None
        self.decoder: EventDecoder
        self.tables: EventTables
        self.writer = writer
        self.merged: MergedTables | None = None
        if dialect is None:
            self.decoder = decoder = Decoder()
            self.scan = find_scan(self.book, decoder)
            self.tables = TraceTables(rank, writer, self.book, self.scan)
        else:
            self.decoder, self.tables = dialect
        self.quality: list[Quality] = []
        self.pairs = Pairs()
        self.events = 0
        """Of all phases, so far."""
        self.end = 0
        """Of what was kept so far, in the unpacked text."""

    def run(self) -> Imported:
        """All of it, and what the file says about itself."""
        return self._imported(self.read())

    def read(self) -> dict[str, Any]:
        """All events into tables; what stands before and behind them comes back."""
        header = self._object(self.splitter.header(), 0)
        footer: dict[str, Any] = {}
        try:
            footer = self._read_events()
        except TruncatedError:
            if not self.partial:
                raise
            self._keep_rest()
        self._finish()
        if not self.events:
            raise _refuse_empty(self.path, self.splitter.end)
        return header | footer

    def _read_events(self) -> dict[str, Any]:
        """All pieces but the rest, which holds the end of the array; the footer comes back."""
        self._look_for_planes()
        self._look_for_ranks()
        while (piece := self.splitter.next_piece()) is not None:
            end = self._read_piece(piece)
            if end is not None:
                return self._footer(end)
        rest = self.splitter.rest()
        end = self._find_end(rest)
        if end is None:
            if not self.splitter.is_array or not self._ends_well(rest):
                raise self.splitter.cut_short()
            self._keep(
                self._decode_or_fail(Piece(rest.text.rstrip().rstrip(b","), rest.start)), rest
            )
            return {}
        self._keep(self._decode_or_fail(Piece(rest.text[: end - 1], rest.start)), rest)
        return self._object(self._as_object(rest.text[end:]), rest.start + end)

    def _look_for_planes(self) -> None:
        """XProf names its devices first, and then no event says that it is a device's."""
        if _PLANE.search(self.splitter.left):
            self.quality.append(
                Quality(
                    code="other-producer",
                    problem="XProf wrote this file (TensorFlow, JAX); its events do not say what "
                    "they are",
                    forbids="anything about the device; import the .xplane.pb beside it instead",
                )
            )

    def _look_for_ranks(self) -> None:
        """A merged file is read rank by rank."""
        if is_merged(self.splitter.left):
            self.merged = self.tables = MergedTables(self.writer)
            self.decoder, self.scan = MergedDecoder(), None

    def _read_piece(self, piece: Piece) -> int | None:
        """Take a piece; if the array ends within it, where that is in the piece."""
        try:
            events = self._decode(piece)
        except msgspec.DecodeError as error:
            end = _find_trailing(error)
            if end is not None:
                inside = Piece(piece.text[: end - 2].rstrip()[:-1], piece.start)
                self._keep(self._decode_or_fail(inside), inside)
                return len(inside.text)
            again = self.splitter.recut(piece)
            if again is None:
                raise _refuse_malformed(self.path, piece.start, error) from None
            piece = again
            events = self._decode_or_fail(piece)
        self._keep(events, piece)
        self.splitter.take(piece)
        return None

    def _footer(self, end: int) -> dict[str, Any]:
        """What follows an array that ended at this place of the buffer."""
        rest = self.splitter.rest()
        close = rest.text.index(b"]", end) + 1
        return self._object(self._as_object(rest.text[close:]), rest.start + close)

    def _find_end(self, rest: Piece) -> int | None:
        """Behind the bracket that ends the array; None if the text ends before it does."""
        try:
            self._try(b"[" + rest.text, rest)
        except msgspec.DecodeError as error:
            end = _find_trailing(error)
            if end is None:
                if str(error) == _TRUNCATED:
                    return None
                raise _refuse_malformed(self.path, rest.start, error) from None
            return len(rest.text[: end - 2].rstrip())
        return len(rest.text.rstrip())

    def _ends_well(self, rest: Piece) -> bool:
        """A bare array may lack its closing bracket, but not half an event."""
        text = rest.text.rstrip().rstrip(b",")
        return find_last_event_end(text) == len(text)

    def _keep_rest(self) -> None:
        """The whole events of a file that was cut short."""
        rest = Piece(self.splitter.left, self.splitter.start)
        whole = Piece(rest.text[: find_last_event_end(rest.text)], rest.start)
        self._keep(self._decode_or_fail(whole), whole)
        end = rest.start + len(rest.text)
        self.quality.append(
            Quality(
                code="truncated",
                problem=f"{self.path.name} was cut short at byte {end}; what follows is not there",
                forbids="totals over the run, the last step, and comparing with complete traces",
            )
        )

    def _decode_or_fail(self, piece: Piece) -> Batch:
        try:
            return self._decode(piece)
        except msgspec.DecodeError as error:
            raise _refuse_malformed(self.path, piece.start, error) from None

    def _decode(self, piece: Piece) -> Batch:
        """By the scanner if there is one and it takes the piece."""
        scanned = self.scan.read(piece) if self.scan else None
        if scanned is not None:
            return scanned
        return self._try(b"".join((b"[", piece.text, b"]")), piece)

    def _try(self, text: bytes, piece: Piece) -> Batch:
        """As it is, else with what JSON does not know mended."""
        try:
            return self.decoder.decode(text)
        except UnicodeDecodeError:
            text = mend(text)
        except msgspec.DecodeError as error:
            mended = mend(text)
            if mended == text or _find_trailing(error) is not None or str(error) == _TRUNCATED:
                raise
            text = mended
        except RecursionError:
            raise _refuse_nested(self.path, piece.start) from None
        try:
            return self.decoder.decode(text)
        except RecursionError:
            raise _refuse_nested(self.path, piece.start) from None

    def _keep(self, batch: Batch, piece: Piece) -> None:
        self.end = piece.start + len(piece.text)
        self.events += batch.events
        try:
            self.pairs.complete(batch, self.end)
            self.tables.add(batch, piece)
        except OddNumberError as odd:
            raise _refuse_number(self.path, self.tables.since, self.end, odd) from None

    def _finish(self) -> None:
        try:
            self.tables.finish()
        except OddNumberError as odd:
            raise _refuse_number(self.path, self.tables.since, self.end, odd) from None

    def _as_object(self, tail: bytes) -> bytes:
        text = tail.strip()
        if self.splitter.is_array:
            return text or b"{}"
        return b"{" + text.removeprefix(b",")

    def _object(self, text: bytes, start: int) -> dict[str, Any]:
        """Header or footer."""
        try:
            try:
                return msgspec.json.decode(text, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError):
                return msgspec.json.decode(mend(text), type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            if str(error) == _TRUNCATED:
                raise self.splitter.cut_short() from None
            raise _refuse_malformed(self.path, start, error) from None

    def _imported(self, said: dict[str, Any]) -> Imported:
        facts = describe(said, self.rank, self.path.name)
        self._doubt()
        ranks = self.merged.describe(facts) if self.merged else [facts]
        return Imported(
            source=SourceFacts(
                file=self.path.name,
                format="kineto",
                size_bytes=self.path.stat().st_size,
                ranks=[each.rank for each in ranks],
                events=self.events,
            ),
            ranks=ranks,
            quality=self.quality,
        )

    def _doubt(self) -> None:
        """State what the events themselves show to be wrong."""
        self.quality += self.pairs.judge()
        negative = self.book.negative + (self.merged.negative if self.merged else 0)
        if negative:
            self.quality.append(
                Quality(
                    code="negative",
                    problem=f"{negative} events end before they start; they count as empty",
                    forbids="durations of single events where the profiler's clocks disagree",
                )
            )


def _find_trailing(error: Exception) -> int | None:
    """Where the decoder found more than the array, counted from 1; None if that is not it."""
    return _find_byte(error) if _TRAILING in str(error) else None


def _refuse_malformed(path: Path, start: int, error: Exception) -> InputError:
    """What begins at this byte is no JSON, or none of a trace."""
    place = start + max(0, _find_byte(error) - 1)
    return InputError(
        f"{path}: not a trace at {say_byte(path, place)} ({error}). Nothing was imported. Copy "
        "the file again, or record it again."
    )


def _refuse_nested(path: Path, start: int) -> InputError:
    """Brackets within brackets."""
    return InputError(
        f"{path}: something after {say_byte(path, start)} is nested too deeply for a trace. "
        "Nothing was imported. Record the trace again."
    )


def _refuse_number(path: Path, start: int, end: int, odd: Exception) -> InputError:
    """A time that is none."""
    return InputError(
        f"{path}: an event between byte {start} and {say_byte(path, end)} cannot be read: {odd}. "
        "Nothing was imported. Record the trace again, or repair that event."
    )


def _refuse_empty(path: Path, end: int) -> InputError:
    """No event at all."""
    return InputError(
        f"{path} was read to its end at {say_byte(path, end)} and holds no event. Nothing was "
        "imported. Record it again, with the profiler's activities switched on."
    )


def _find_byte(error: Exception) -> int:
    _, _, after = str(error).partition("(byte ")
    digits = after.partition(")")[0]
    return int(digits) if digits.isdecimal() else 0


_SETTINGS = ("record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory")
_RANK_IN_NAME = re.compile(r"(?:rank[-_. ]?|-TP-(?=\d+\.))(\d{1,6})", re.IGNORECASE)
"""`rank3.json`, and `1747-TP-3.trace.json.gz` as SGLang names its files."""


def describe(said: dict[str, Any], rank: int, file: str) -> RankFacts:
    """Facts of the one rank that a file is about; `rank` if neither it nor its name says."""
    world = said.get("distributedInfo")
    world = world if isinstance(world, dict) else {}
    claimed = _whole(world.get("rank"))
    named = _RANK_IN_NAME.search(file)
    by_name = rank if named is None else int(named[1])
    base = _whole(said.get("baseTimeNanoseconds"))
    return RankFacts(
        rank=by_name if claimed is None else claimed,
        world_size=_whole(world.get("world_size")),
        host=_text(said.get("host_name")),
        chips=[_chip(each) for each in _list(said.get("deviceProperties"))],
        origin_ns=base or 0,
        is_rank_known=claimed is not None,
        settings={key: _text(said[key]) for key in _SETTINGS if key in said},
    )


def _chip(properties: dict[str, Any]) -> ChipFacts:
    get = properties.get
    return ChipFacts(
        device=_whole(get("id")) or 0,
        name=_text(get("name")),
        sm_count=_whole(get("numSms")),
        warp_size=_whole(get("warpSize")),
        max_threads_per_sm=_whole(get("maxThreadsPerMultiprocessor")),
        registers_per_sm=_whole(get("regsPerMultiprocessor")),
        shared_bytes_per_sm=_whole(
            get("sharedMemPerMultiprocessor") or get("maxSharedMemoryPerMultiProcessor")
        ),
        memory_bytes=_whole(get("totalGlobalMem")),
    )


def _whole(value: object) -> int | None:
    """A number of no absurd size, also if it came as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    is_fit = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return int(value) if is_fit else None  # type: ignore[call-overload]


def _text(value: object) -> str:
    return "" if value is None else str(value)[:200]


def _list(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
