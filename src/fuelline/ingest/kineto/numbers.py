"""Numbers as profilers write them: whole, with fractions, as text; times become nanoseconds.

The usual list of numbers becomes a column in one go; only lists with odd ones are looked at one by
one. A field that is no number becomes null; a time that is none is an error.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import polars as pl
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.ingest.kineto.events import Number

MOST_TS_US = 2**53
"""Beyond this a time in microseconds is no time: the year 2255."""
_INT64 = 2**63


class OddNumberError(ValueError):
    """A value that should be a number and is not."""


def moments(starts: Sequence[Any], lengths: Sequence[Number]) -> dict[str, pl.Series]:
    """Start and length of events as they are written; `settle` makes nanoseconds of them."""
    took = floats(lengths)
    _check(took, "a duration")
    if isinstance(starts[0], Raw):
        exact = [exact_ns(bytes(start)) for start in starts]
        return {"start_ns": pl.Series(values=exact, dtype=pl.Int64), "took_us": took}
    start = floats(starts)
    if start.null_count():
        raise OddNumberError("an event has no time")
    _check(start, "a time")
    return {"start_us": start, "took_us": took}


def _check(micros: pl.Series, what: str) -> None:
    low, high = micros.min(), micros.max()
    if low is not None and not (-MOST_TS_US < low <= high < MOST_TS_US):  # type: ignore[operator]
        raise OddNumberError(f"{what} is absurd")


def settle(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Start and end in nanoseconds; and how many events would have ended before they started.

    Whole microseconds and their fraction apart, since a float holds only 53 bits.
    """
    took = (pl.col("took_us").fill_null(0.0) * 1000).round().cast(pl.Int64)
    if "start_us" in frame.columns:
        whole = pl.col("start_us").floor()
        part = ((pl.col("start_us") - whole) * 1000).round()
        frame = frame.with_columns(
            (whole.cast(pl.Int64) * 1000 + part.cast(pl.Int64)).alias("start_ns")
        )
    settled = frame.with_columns((pl.col("start_ns") + took.clip(0)).alias("end_ns"))
    return settled, frame.select((took < 0).sum()).item()


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


def ints(values: Sequence[Number]) -> pl.Series:
    """Whole numbers; what is none becomes null."""
    try:
        return pl.Series(values=values, dtype=pl.Int64)
    except (TypeError, OverflowError):
        return pl.Series(values=[_int(value) for value in values], dtype=pl.Int64)


def floats(values: Sequence[Number]) -> pl.Series:
    """Numbers; text that is none is an error, because times and sizes would be wrong in silence."""
    try:
        return pl.Series(values=values, dtype=pl.Float64)
    except (TypeError, OverflowError):
        return pl.Series(values=[_float(value) for value in values], dtype=pl.Float64)


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
