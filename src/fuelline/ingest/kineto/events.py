"""Events as Kineto writes them, typed so that a decoder builds nothing that is not needed.

Three readers of the same text, each for what the one before cannot read. `strict` knows phases and
categories by heart, so that flows and marks, half of a trace, cost next to nothing. `loose` takes
any category. Whatever has a field of a wrong type is read as plain objects and bent into shape.
Times of an epoch with fractions do not fit a float: they are kept as text (`exact`).
"""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, field

Number = int | float | str | None
_NO_TEXT = Raw(b"")


class Args(Struct, frozen=True, gc=False):
    """What we use of an event's arguments, in the order in which they are mostly written."""

    external: Number = field(name="External id", default=None)
    device: Number = None
    stream: Number = None
    correlation: Number = None
    size: Number = field(name="bytes", default=None)
    registers: Number = field(name="registers per thread", default=None)
    shared: Number = field(name="shared memory", default=None)
    grid: list[int] | str | None = None
    block: list[int] | str | None = None
    occupancy: Number = field(name="est. achieved occupancy %", default=None)
    external_old: Number = field(name="external id", default=None)
    graph: Number = field(name="graph id", default=None)
    group: str | int | None = field(name="Process Group Name", default=None)
    sequence: Number = field(name="Seq", default=None)
    elements: Number = field(name="In msg nelems", default=None)
    dtype: str | None = None
    dims: Raw = field(name="Input Dims", default=_NO_TEXT)
    types: Raw = field(name="Input type", default=_NO_TEXT)
    concrete: Raw = field(name="Concrete Inputs", default=_NO_TEXT)


NO_ARGS = Args()


_CATEGORIES = (
    *("cpu_op", "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset"),
    *("user_annotation", "gpu_user_annotation", "python_function", "overhead", "cuda_sync"),
    *("Operator", "Runtime", "Kernel", "Memcpy", "Memset", "Trace", "cuda_profiler_range"),
)
_PHASES = tuple("BEiIsftMCbneSTpFNODPVvRc(),")
"""Phases of Chrome's trace format other than X."""


class Event(Struct, frozen=True, gc=False):
    """One event with times as numbers."""

    ph: str = ""
    cat: str | None = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Number = None
    dur: Number = None
    args: Args = NO_ARGS


class ExactEvent(Struct, frozen=True, gc=False):
    """One event whose start is kept as it is written."""

    ph: str = ""
    cat: str | None = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Raw = _NO_TEXT
    dur: Number = None
    args: Args = NO_ARGS


class Complete(Struct, frozen=True, gc=False, tag_field="ph", tag="X"):
    """An event with a duration, of a category that we know."""

    cat: Literal[_CATEGORIES] | None = None  # type: ignore[valid-type]
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Number = None
    dur: Number = None
    args: Args = NO_ARGS


class ExactComplete(Struct, frozen=True, gc=False, tag_field="ph", tag="X"):
    """The same with its start as it is written."""

    cat: Literal[_CATEGORIES] | None = None  # type: ignore[valid-type]
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Raw = _NO_TEXT
    dur: Number = None
    args: Args = NO_ARGS


AnyEvent = Event | ExactEvent | Complete | ExactComplete

_OTHERS = tuple(
    msgspec.defstruct(f"Phase{ord(phase)}", [], tag_field="ph", tag=phase, frozen=True, gc=False)
    for phase in _PHASES
)


def _strict_decoder(complete: type[Struct]) -> msgspec.json.Decoder[list[Any]]:
    phases: Any = reduce(or_, _OTHERS, complete)
    return msgspec.json.Decoder(list[phases])


_STRICT = _strict_decoder(Complete)
_STRICT_EXACT = _strict_decoder(ExactComplete)
_LOOSE = msgspec.json.Decoder(list[Event])
_LOOSE_EXACT = msgspec.json.Decoder(list[ExactEvent])
_PLAIN = msgspec.json.Decoder(list[dict[str, Any]])
_FLOAT_TS_US = 2**43
"""From here on a float of microseconds is coarser than a nanosecond."""


class Decoder:
    """Reads pieces of one file; what it has learnt from one piece it keeps for the next."""

    def __init__(self) -> None:
        self._is_strict = True
        self._is_exact = False
        self.events = 0
        """Of all phases, so far."""

    def decode(self, text: bytes) -> list[AnyEvent]:
        """The events of an array that have a duration; msgspec.DecodeError if it is no array."""
        try:
            events = self._typed(text)
        except msgspec.ValidationError:
            self._is_strict = False
            try:
                events = self._typed(text)
            except msgspec.ValidationError:
                events = [_bend(each) for each in _PLAIN.decode(text)]
        complete = _with_duration(events)
        if not self._is_exact and _is_coarse(complete):
            self._is_exact = True
            return self.decode(text)
        self.events += len(events)
        return complete

    def _typed(self, text: bytes) -> list[Any]:
        if self._is_strict:
            return (_STRICT_EXACT if self._is_exact else _STRICT).decode(text)
        return (_LOOSE_EXACT if self._is_exact else _LOOSE).decode(text)


def _with_duration(events: list[Any]) -> list[AnyEvent]:
    if events and isinstance(events[0], (Event, ExactEvent)):
        return [event for event in events if event.ph == "X"]
    kinds = _COMPLETE
    found: list[Any] = [event for event in events if event.__class__ in kinds]
    return found


_COMPLETE: frozenset[type] = frozenset((Complete, ExactComplete))


def _is_coarse(events: list[AnyEvent]) -> bool:
    """Whether times are fractions that a float cannot hold."""
    ts = events[0].ts if events else None
    return isinstance(ts, float) and abs(ts) >= _FLOAT_TS_US


_NOT_JSON = re.compile(
    rb"(:\s*)([+-]?(?:nan(?:\(ind\))?|inf(?:inity)?))(?=\s*[,}\]])", re.IGNORECASE
)
_BROKEN = re.compile("[\udc80-\udcff]")
_DIMS = msgspec.json.Decoder(list[Any])


def mend(text: bytes) -> bytes:
    """Text of the same length, without what JSON does not know: `nan`, `inf`, broken UTF-8."""
    named = _NOT_JSON.sub(lambda found: found[1] + b'""'.ljust(len(found[2])), text)
    return _BROKEN.sub("?", named.decode("utf-8", "surrogateescape")).encode()


def _bend(plain: dict[str, Any]) -> Event:
    """An event of any shape; a field of a wrong type counts as absent, a number may be text."""
    args = plain.get("args")
    return Event(
        ph=_text(plain.get("ph")),
        cat=_text(plain.get("cat")),
        name=_text(plain.get("name")),
        pid=_number(plain.get("pid")),
        tid=_number(plain.get("tid")),
        ts=_number(plain.get("ts")),
        dur=_number(plain.get("dur")),
        args=_bend_args(args) if isinstance(args, dict) else NO_ARGS,
    )


def _bend_args(plain: dict[str, Any]) -> Args:
    numbers = {
        name: _number(plain.get(key))
        for name, key in zip(Args.__struct_fields__, Args.__struct_encode_fields__, strict=True)
        if name not in ("grid", "block", "group", "dtype", "dims", "types", "concrete")
    }
    return Args(
        **numbers,
        grid=_sizes(plain.get("grid")),
        block=_sizes(plain.get("block")),
        group=_text(plain.get("Process Group Name")) or None,
        dtype=_text(plain.get("dtype")) or None,
        dims=Raw(msgspec.json.encode(plain.get("Input Dims", []))),
        types=Raw(msgspec.json.encode(plain.get("Input type", []))),
        concrete=Raw(msgspec.json.encode(plain.get("Concrete Inputs", []))),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number(value: object) -> Number:
    return value if isinstance(value, (int, float, str)) else None


def _sizes(value: object) -> list[int] | str | None:
    if isinstance(value, list):
        return [int(each) for each in value if isinstance(each, (int, float))]
    return value if isinstance(value, str) else None


def decode_list(text: Raw) -> list[Any]:
    """A list inside an argument; empty if it is not one."""
    try:
        return _DIMS.decode(text)
    except msgspec.MsgspecError:
        return []
