"""Text of a piece in, events by what must be known of them out: the readers in Python.

Three readers of the same text. The first knows the categories by heart: flows and marks, half of a
trace, cost it next to nothing, and operators, another third, no arguments. It gives up a piece with
anything else in it, which the second then reads: any category, any order of keys. What has a field
of a wrong type the third takes as plain objects. A file that the first gave up often is left to the
others. All three make the same of an event (tests/unit/ingest/kineto/test_same.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw, Struct

from fuelline.ingest.kineto.events import (
    NO_ARGS,
    Args,
    CallLinks,
    ExactEvent,
    Number,
    TraceEvent,
    bend,
)
from fuelline.ingest.kineto.sorts import DEVICE, IGNORED, LINKED, UNLINKED, EventSort, find_sort

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FLOAT_TS_US = 2**43
"""From here on a float of microseconds is coarser than a nanosecond."""


class FastReaderTrust:
    """Whether a reader that gives up pieces of a file is worth asking again.

    It may give up every fourth piece, and four at the start: to begin a piece twice costs less than
    half of what the faster reader saves on three others (bench/trace_import.py).
    """

    _PIECES = 4

    def __init__(self) -> None:
        self._asked = 0
        self._given_up = 0

    @property
    def lasts(self) -> bool:
        """Ask it again."""
        return self._given_up * self._PIECES <= self._asked + self._PIECES**2

    def count(self, *, given_up: bool) -> None:
        """It was asked once more."""
        self._asked += 1
        self._given_up += given_up


@dataclass(frozen=True)
class Batch:
    """The events of a piece."""

    complete: dict[EventSort, list[Any]]
    """Apart by what must be known of them, in the order of the file."""
    events: int
    """Of all phases."""
    halves: list[Any] = field(default_factory=list)
    """Beginnings and ends that are events of their own, in the order of the file."""
    places: dict[EventSort, list[int]] = field(default_factory=dict)
    """Where the complete events stand in the file, if that is known."""
    is_exact: bool = False
    """Starts are kept as text."""
    is_scanned: bool = False
    """The scanner has the others; it must be asked to keep them."""

    @property
    def is_coarse(self) -> bool:
        """Whether a time is a fraction that a float cannot hold."""
        return any(
            _is_coarse(event.ts)
            for same in (*self.complete.values(), self.halves)
            for event in same
        )


def _is_coarse(ts: object) -> bool:
    return isinstance(ts, float) and abs(ts) >= _FLOAT_TS_US


class _Fast:
    """The first reader; `exact` keeps starts as text."""

    def __init__(self, *, exact: bool) -> None:
        self._is_exact = exact
        start: Any = ("ts", Raw, Raw(b"")) if exact else ("ts", Number, None)
        whose = [("pid", Number, None), ("tid", Number, None)]
        kinds = {
            **{_struct(cat, [*whose, start], Args, NO_ARGS): cat for cat in DEVICE},
            **{_struct(cat, [whose[1], start], CallLinks, CallLinks()): cat for cat in LINKED},
            **{_struct(cat, [whose[1], start], Raw, Raw(b"")): cat for cat in UNLINKED},
        }
        empty = [
            msgspec.defstruct(f"No_{cat}", [], tag_field="cat", tag=cat, frozen=True, gc=False)
            for cat in IGNORED
        ]
        self._sorts: dict[type, EventSort] = {kind: find_sort(cat) for kind, cat in kinds.items()}
        self._ignored = dict.fromkeys(empty, deque[Any](maxlen=0).append)
        every: Any = reduce(or_, (*self._sorts, *empty))
        self._decoder = msgspec.json.Decoder(list[every])

    def decode(self, text: bytes) -> Batch:
        events = self._decoder.decode(text)
        found: dict[EventSort, list[Any]] = {sort: [] for sort in self._sorts.values()}
        put = {kind: found[sort].append for kind, sort in self._sorts.items()} | self._ignored
        for event in events:
            put[event.__class__](event)
        complete = {sort: same for sort, same in found.items() if same}
        return Batch(complete, len(events), is_exact=self._is_exact)


def _struct(cat: str, where: list[Any], args: Any, no_args: Any) -> type[Struct]:
    """Fields in the order in which they are written; a phase other than X is not known here."""
    fields: list[Any] = [
        ("ph", Literal["X"]),
        ("name", str, ""),
        *where,
        ("dur", Number, None),
        ("args", args, no_args),
    ]
    return msgspec.defstruct(
        f"Event_{cat}", fields, tag_field="cat", tag=cat, frozen=True, gc=False
    )


@lru_cache(2)
def _find_fast(exact: bool) -> _Fast:  # noqa: FBT001 - a key
    return _Fast(exact=exact)


_LOOSE: dict[bool, msgspec.json.Decoder[Any]] = {
    False: msgspec.json.Decoder(list[TraceEvent]),
    True: msgspec.json.Decoder(list[ExactEvent]),
}
_SINGLE: dict[bool, msgspec.json.Decoder[Any]] = {
    False: msgspec.json.Decoder(TraceEvent),
    True: msgspec.json.Decoder(ExactEvent),
}
_APART = msgspec.json.Decoder(list[Raw])


class _Phase(Struct):
    """What decides whether an event is kept; what is not kept may hold anything."""

    ph: Any = ""
    cat: Any = ""


_PHASE = msgspec.json.Decoder(_Phase)
_UNKEPT = TraceEvent()


def _is_kept(text: Raw) -> bool:
    found = _PHASE.decode(text)
    return found.ph in ("X", "B", "E") and found.cat not in IGNORED


class Decoder:
    """Reads pieces of one file; what it has learnt from one piece it keeps for the next."""

    def __init__(self) -> None:
        self._fast = FastReaderTrust()
        self.is_exact = False
        """Starts are kept as text: since the first piece with one that a float cannot hold."""

    def decode(self, text: bytes) -> Batch:
        """The events of an array; msgspec.DecodeError if it is none."""
        batch = self._read(text)
        if not self.is_exact and batch.is_coarse:
            self.is_exact = True
            batch = self._read(text)
        return batch

    def _read(self, text: bytes) -> Batch:
        if self._fast.lasts:
            try:
                batch = _find_fast(self.is_exact).decode(text)
            except msgspec.DecodeError:
                self._fast.count(given_up=True)
            else:
                self._fast.count(given_up=False)
                return batch
        return self.decode_loose(text)

    def decode_loose(self, text: bytes, places: Sequence[int] = ()) -> Batch:
        """The same for events of any shape, which stand at these places of the file."""
        try:
            events: list[Any] = _LOOSE[self.is_exact].decode(text)
        except msgspec.DecodeError:
            events = list(self._read_apart(text))
        found = _sort_out(events, places)
        return replace(found, is_exact=self.is_exact)

    def _read_apart(self, text: bytes) -> Iterator[Any]:
        """Each event by itself, so that a strange one changes nothing of its neighbours."""
        return map(self._read_single, _APART.decode(text))

    def _read_single(self, text: Raw) -> Any:
        try:
            return _SINGLE[self.is_exact].decode(text)
        except msgspec.DecodeError:
            return bend(text, exact=self.is_exact) if _is_kept(text) else _UNKEPT


def _sort_out(events: list[Any], places: Sequence[int]) -> Batch:
    found: dict[EventSort, list[Any]] = {}
    stand: dict[EventSort, list[int]] = {}
    halves = []
    for number, event in enumerate(events):
        if event.cat in IGNORED:
            continue
        if event.ph == "X":
            sort = find_sort(event.cat)
            found.setdefault(sort, []).append(event)
            if places:
                stand.setdefault(sort, []).append(places[number])
        elif event.ph in ("B", "E"):
            halves.append(event)
    return Batch(found, len(events), halves, stand)
