"""Numbers as profilers write them: whole, with fractions, as text; times become nanoseconds.

The usual list of numbers becomes a column in one go; only lists with odd ones are looked at one by
one. A field that is not a number becomes null; a time that is none is an error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from fuelline.ingest.kineto.events import Number

MOST_TS_US = 2**53
"""Beyond this a time in microseconds is no time: the year 2255."""
_INT64 = 2**63


class OddNumberError(ValueError):
    """A value that should be a number and is not."""


@dataclass(frozen=True)
class Moments:
    """When events start and end."""

    columns: dict[str, pl.Series]
    """`start_ns` and `end_ns`."""
    negative: int
    """Events that would have ended before they started; they are empty."""


def moments(starts: Sequence[Any], lengths: Sequence[Number], *, exact: bool) -> Moments:
    """Of lengths in microseconds and starts, which are nanoseconds already if `exact`."""
    took_us = floats(lengths)
    _check(took_us, "a duration")
    took = _rounded(pl.col("took_us").fill_null(0.0) * 1000)
    start = pl.col("start")
    if exact:
        at = pl.Series(values=starts, dtype=pl.Int64)
    else:
        at = _times(starts)
        whole = start.floor()  # apart from the fraction: a float holds 53 bits only
        start = whole.cast(pl.Int64) * 1000 + _rounded((start - whole) * 1000)
    found = pl.DataFrame({"start": at, "took_us": took_us}).select(
        start.alias("start_ns"),
        (start + took.clip(0)).alias("end_ns"),
        (took < 0).sum().alias("negative"),
    )
    columns = {name: found[name] for name in ("start_ns", "end_ns")}
    return Moments(columns, int(found["negative"][0]))


def exact_starts(starts: Sequence[Raw]) -> list[int]:
    """Nanoseconds of starts that are text."""
    return [exact_ns(bytes(start)) for start in starts]


def _rounded(nanos: pl.Expr) -> pl.Expr:
    """Halves up, as the scanner does it; what polars does with them depends on its version."""
    return (nanos + 0.5).floor().cast(pl.Int64)


def _times(starts: Sequence[Number]) -> pl.Series:
    found = floats(starts)
    if found.null_count():
        raise OddNumberError("an event has no time")
    _check(found, "a time")
    return found


def _check(micros: pl.Series, what: str) -> None:
    low, high = micros.min(), micros.max()
    if low is not None and not (-MOST_TS_US < low <= high < MOST_TS_US):  # type: ignore[operator]
        raise OddNumberError(f"{what} is absurd")


def exact_ns(text: bytes) -> int:
    """`1712195495519689.047` microseconds -> 1712195495519689047 nanoseconds."""
    whole, _, part = text.strip(b'"').partition(b".")
    if whole.isdigit() and (not part or part.isdigit()) and len(whole) <= 16:
        nanos = int(whole) * 1000 + int((part + b"000")[:3])
        if nanos < MOST_TS_US * 1000:
            return nanos
    try:
        micros = Decimal(text.strip(b'"').decode("ascii", "replace"))
    except InvalidOperation:
        micros = Decimal("Infinity")
    if not micros.is_finite() or abs(micros) >= MOST_TS_US:
        raise OddNumberError(f"a time is {text[:40]!r}, which is no number of microseconds")
    return int(micros * 1000)


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
        number = float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):  # `float` takes "nan" and "Infinity" for numbers
        raise OddNumberError(f"{str(value)[:40]!r} is not a number")
    return number
