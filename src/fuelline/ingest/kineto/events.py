"""Events as Kineto writes them, typed so that a decoder builds nothing that is not needed.

Numbers may be strings (AMD's `bytes`, old threads). What has a field of a wrong type is read as
plain objects and bent into shape. Times of an epoch with fractions do not fit a float: they are
kept as text until they are whole nanoseconds.
"""

from __future__ import annotations

import re
from typing import Any

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


class OpArgs(Struct, frozen=True, gc=False):
    """What we use of an operator's arguments, and only of few operators."""

    external: Number = field(name="External id", default=None)
    external_old: Number = field(name="external id", default=None)
    dims: Raw = field(name="Input Dims", default=_NO_TEXT)
    types: Raw = field(name="Input type", default=_NO_TEXT)
    concrete: Raw = field(name="Concrete Inputs", default=_NO_TEXT)


class CallLinks(Struct, frozen=True, gc=False):
    """What we use of a runtime call's arguments."""

    external: Number = field(name="External id", default=None)
    correlation: Number = None
    external_old: Number = field(name="external id", default=None)


class TraceEvent(Struct, frozen=True, gc=False):
    """One event of any kind with times as numbers."""

    ph: str = ""
    cat: str | None = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Number = None
    dur: Number = None
    args: Args = NO_ARGS


class ExactEvent(Struct, frozen=True, gc=False):
    """One event of any kind whose start is kept as it is written."""

    ph: str = ""
    cat: str | None = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Raw = _NO_TEXT
    dur: Number = None
    args: Args = NO_ARGS


_NOT_JSON = re.compile(
    rb"(:\s*)([+-]?(?:nan(?:\(ind\))?|inf(?:inity)?))(?=\s*[,}\]])", re.IGNORECASE
)
_BROKEN = re.compile("[\udc80-\udcff]")


def mend(text: bytes) -> bytes:
    """Text of the same length, without what JSON does not know: `nan`, `inf`, broken UTF-8."""
    named = _NOT_JSON.sub(lambda found: found[1] + b'""'.ljust(len(found[2])), text)
    return _BROKEN.sub("?", named.decode("utf-8", "surrogateescape")).encode()


_PLAIN = msgspec.json.Decoder(dict[str, Raw])
_ANY = msgspec.json.Decoder()


def bend(text: Raw, *, exact: bool) -> TraceEvent | ExactEvent:
    """An event of any shape; a field of a wrong type counts as absent, a number may be text."""
    plain = _PLAIN.decode(text)
    args = plain.get("args", _NO_TEXT)
    fields: dict[str, Any] = {
        "ph": _text(_value(plain, "ph")),
        "cat": _text(_value(plain, "cat")),
        "name": _text(_value(plain, "name")),
        "pid": _number(_value(plain, "pid")),
        "tid": _number(_value(plain, "tid")),
        "dur": _number(_value(plain, "dur")),
        "args": _bend_args(args),
    }
    if exact:
        return ExactEvent(ts=plain.get("ts", _NO_TEXT), **fields)
    return TraceEvent(ts=_number(_value(plain, "ts")), **fields)


def _value(plain: dict[str, Raw], key: str) -> Any:
    """A value; one that cannot be read (`1e400`, half a pair of surrogates) as it is written."""
    raw = plain.get(key)
    try:
        return None if raw is None else _ANY.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return bytes(raw or b"").decode("utf-8", "replace")


def _bend_args(text: Raw) -> Args:
    try:
        plain = _PLAIN.decode(text)
    except msgspec.DecodeError:
        return NO_ARGS
    numbers = {
        name: _number(_value(plain, key))
        for name, key in zip(Args.__struct_fields__, Args.__struct_encode_fields__, strict=True)
        if name not in ("grid", "block", "group", "dtype", "dims", "types", "concrete")
    }
    return Args(
        **numbers,
        grid=_sizes(_value(plain, "grid")),
        block=_sizes(_value(plain, "block")),
        group=_text(_value(plain, "Process Group Name")) or None,
        dtype=_text(_value(plain, "dtype")) or None,
        dims=plain.get("Input Dims", _NO_TEXT),
        types=plain.get("Input type", _NO_TEXT),
        concrete=plain.get("Concrete Inputs", _NO_TEXT),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number(value: object) -> Number:
    return value if isinstance(value, (int, float, str)) else None


def _sizes(value: object) -> list[int] | str | None:
    if isinstance(value, list):
        return [int(each) for each in value if isinstance(each, (int, float))]
    return value if isinstance(value, str) else None


_OP_ARGS = msgspec.json.Decoder(OpArgs)


def decode_op_args(args: Raw | Args) -> OpArgs | Args:
    """An operator's arguments; those of a wrong type count as absent."""
    if isinstance(args, Args):
        return args
    if not args:
        return NO_ARGS
    try:
        return _OP_ARGS.decode(args)
    except msgspec.DecodeError:
        return _bend_args(args)


def decode_list(text: bytes) -> list[Any]:
    """A list inside an argument; empty if it is not one.

    It was skipped so far: its letters may be broken, its brackets too deep.
    """
    try:
        found = _ANY.decode(text) if text else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else []
