"""Numbers as profilers write them: whole, with fractions, as text; times become nanoseconds.

The usual list of numbers becomes a column in one go; only lists with odd ones are looked at one by
one. A field that is no number becomes null; a time that is none is an error.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.kineto.events import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.ingest.kineto.events import AnyEvent, Number

MOST_TS_US = 2**53
"""Beyond this a time in microseconds is no time: the year 2255."""
_INT64 = 2**63


class OddNumberError(ValueError):
    """A value that should be a number and is not."""


def starts(events: Sequence[AnyEvent]) -> pl.Series:
    """Start times in nanoseconds."""
    if events and isinstance(events[0], Event):
        return _times([event.ts for event in events])  # type: ignore[misc]
    return pl.Series(values=[exact_ns(bytes(e.ts)) for e in events], dtype=pl.Int64)  # type: ignore[arg-type]


def _times(values: list[Number]) -> pl.Series:
    """Microseconds to nanoseconds; whole parts apart, since a float holds only 53 bits."""
    micros = floats(values)
    if micros.null_count() or not (micros.abs().max() or 0.0) < MOST_TS_US:  # type: ignore[operator]
        raise OddNumberError("an event has no time, or an absurd one")
    whole = micros.floor()
    part = ((micros - whole) * 1000).round()
    nanos: pl.Series = whole.cast(pl.Int64) * 1000 + part.cast(pl.Int64)
    return nanos


def exact_ns(text: bytes) -> int:
    """`1712195495519689.047` microseconds -> 1712195495519689047 nanoseconds."""
    whole, _, part = text.strip(b'"').partition(b".")
    if whole.isdigit() and (not part or part.isdigit()) and len(whole) <= 16:
        return int(whole) * 1000 + int((part + b"000")[:3])
    try:
        nanos = Decimal(text.strip(b'"').decode("ascii", "replace")) * 1000
    except InvalidOperation:
        nanos = Decimal("nan")
    if not abs(nanos) < MOST_TS_US * 1000:
        raise OddNumberError(f"a time is {text[:40]!r}, which is no number of microseconds")
    return int(nanos)


def ints(values: list[Number]) -> pl.Series:
    """Whole numbers; what is none becomes null."""
    try:
        return pl.Series(values=values, dtype=pl.Int64)
    except (TypeError, OverflowError):
        return pl.Series(values=[_int(value) for value in values], dtype=pl.Int64)


def floats(values: list[Number]) -> pl.Series:
    """Numbers; text that is none is an error, because times and sizes would be wrong in silence."""
    try:
        return pl.Series(values=values, dtype=pl.Float64)
    except (TypeError, OverflowError):
        return pl.Series(values=[_float(value) for value in values], dtype=pl.Float64)


def small(values: list[Number]) -> pl.Series:
    """Whole numbers of 32 bits; what does not fit becomes null."""
    fitting: pl.Series = ints(values).cast(pl.Int32, strict=False)
    return fitting


def _int(value: Number) -> int | None:
    try:
        number = int(value, 0) if isinstance(value, str) else int(value or 0)
    except (ValueError, OverflowError):
        return None
    return number if value is not None and -_INT64 <= number < _INT64 else None


def _float(value: Number) -> float | None:
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise OddNumberError(f"{str(value)[:40]!r} is not a number") from None
