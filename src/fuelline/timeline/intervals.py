"""Interval algebra on columns of start and end times.

A *set* is a frame with columns `start_ns` and `end_ns` whose intervals are sorted, not empty, and
neither overlap nor touch; `merge` makes one of any intervals. Everything here is whole columns at a
time and is tested against a naive oracle that counts single nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


SPAN = ("start_ns", "end_ns")
_NOTHING = {"start_ns": pl.Int64(), "end_ns": pl.Int64()}


def merge(intervals: pl.DataFrame) -> pl.DataFrame:
    """The set of all moments that some interval covers.

    | start | end |      | start | end |
    | 0     | 10  |  ->  | 0     | 12  |
    | 5     | 12  |      | 20    | 21  |
    | 20    | 21  |
    """
    ordered = intervals.select(SPAN)
    lasts = (ordered["end_ns"] > ordered["start_ns"]).fill_null(value=False)
    if not lasts.all():  # copied only where it must be: there are millions
        ordered = ordered.filter(lasts)
    if not ordered["start_ns"].is_sorted():
        ordered = ordered.sort("start_ns")
    if not ordered.height:
        return nothing()
    reach = ordered["end_ns"].cum_max()
    is_first = (ordered["start_ns"] > reach.shift(1)).fill_null(value=True)
    is_last = is_first.shift(-1).fill_null(value=True)
    # Gathered, not filtered: what polars filters keeps the memory of all that it was filtered from.
    return pl.DataFrame(
        {
            "start_ns": ordered["start_ns"].gather(is_first.arg_true()),
            "end_ns": reach.gather(is_last.arg_true()),
        }
    )


def merge_all(sets: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The set of all moments that some of these frames cover."""
    return merge(pl.concat([nothing(), *(each.select(SPAN) for each in sets)]))


def nothing() -> pl.DataFrame:
    """The empty set."""
    return pl.DataFrame(schema=_NOTHING)


def span_of(intervals: pl.DataFrame) -> pl.DataFrame:
    """The one interval from the first start to the last end."""
    return intervals.select(pl.col("start_ns").min(), pl.col("end_ns").max())


def total_ns(a_set: pl.DataFrame) -> int:
    """How long a set lasts."""
    return int((a_set["end_ns"] - a_set["start_ns"]).sum())


def intersect(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Moments in both sets."""
    found = [
        _cut([part, near]).filter(pl.col("open") == 0b11) for part, near in _beside(one, other)
    ]
    return merge_all(found)


def subtract(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Moments in the first set and not in the second."""
    if one.height == 1:
        return _gaps(other, *one.select(SPAN).row(0))
    found = [
        _cut([part, near]).filter(pl.col("open") == 0b01) for part, near in _beside(one, other)
    ]
    return merge_all(found)


def _gaps(a_set: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Moments of one interval that a set leaves free."""
    inside = around(a_set, start_ns, end_ns)
    first, last = (pl.Series([moment], dtype=pl.Int64) for moment in (start_ns, end_ns))
    free = pl.DataFrame(
        {
            "start_ns": pl.concat([first, inside["end_ns"]]),
            "end_ns": pl.concat([inside["start_ns"], last]),
        }
    )
    return free.filter(pl.col("end_ns") > pl.col("start_ns"))


def around(a_set: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """The intervals of a set that share a moment with this stretch of time."""
    first = int(a_set["end_ns"].search_sorted(start_ns, side="right"))
    last = int(a_set["start_ns"].search_sorted(end_ns, side="left"))
    return a_set.slice(first, max(0, last - first)).select(SPAN)


_ROWS = 65_536
"""Intervals that are looked at together: what is made of them on the way needs ten times their
memory, which for a trace of 2 GB would be more than all the rest (bench/trace_import.py)."""


def _beside(one: pl.DataFrame, *others: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, ...]]:
    """A set in slices, each with what of the other sets lies around it."""
    for part in one.select(SPAN).iter_slices(_ROWS):
        start_ns, end_ns = int(part["start_ns"][0]), int(part["end_ns"][-1])
        yield part, *(around(other, start_ns, end_ns) for other in others)


def _cut(sets: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The line cut at every edge; bit N of `open` tells whether set N lies over a piece.

    Since intervals of a set do not overlap, the bits never carry.
    """
    moments, steps = [], []
    for place, a_set in enumerate(sets):
        for column, step in (("start_ns", 1 << place), ("end_ns", -1 << place)):
            moments.append(a_set[column])
            steps.append(pl.Series([step], dtype=pl.Int64).new_from_index(0, a_set.height))
    edges = pl.DataFrame({"start_ns": pl.concat(moments), "step": pl.concat(steps)})
    edges = edges.sort("start_ns")
    return edges.select(
        "start_ns",
        pl.col("start_ns").shift(-1).alias("end_ns"),
        pl.col("step").cum_sum().alias("open"),
    ).filter(pl.col("end_ns") > pl.col("start_ns"))


def partition(whole: pl.DataFrame, layers: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The moments of a set, each given to the first of these sets that covers it.

    | start_ns | end_ns | layer |   in order of time; `layer` is null where none does
    """
    covering = pl.col("open") // 2  # without the bit of the whole
    first = covering.bitwise_trailing_zeros().cast(pl.Int32)
    found = [nothing().with_columns(pl.lit(None, pl.Int32).alias("layer"))]
    for part, *beside in _beside(whole, *layers):
        # What lies outside of the set need not be sorted into it: mostly, nearly everything does.
        near = [layer.filter(_touches(layer, part)) for layer in beside]
        found.append(
            _cut([part, *near])
            .filter(pl.col("open") % 2 == 1)
            .select(*SPAN, pl.when(covering > 0).then(first).alias("layer"))
        )
    return pl.concat(found)


def _touches(intervals: pl.DataFrame, a_set: pl.DataFrame) -> pl.Series:
    """Whether each interval, none of them empty, shares a moment with a set."""
    begun = a_set["start_ns"].search_sorted(intervals["end_ns"], side="left")
    over = a_set["end_ns"].search_sorted(intervals["start_ns"], side="right")
    touching: pl.Series = begun > over
    return touching


def covered_ns(intervals: pl.DataFrame, a_set: pl.DataFrame) -> pl.Series:
    """For each interval, which may overlap others, how much of it lies in a set."""
    if not a_set.height:
        return pl.repeat(0, intervals.height, dtype=pl.Int64, eager=True)
    covered: pl.Series = _before(intervals["end_ns"], a_set) - _before(intervals["start_ns"], a_set)
    return covered


def _before(moments_ns: pl.Series, a_set: pl.DataFrame) -> pl.Series:
    """How much of a set lies before each moment."""
    length = a_set["end_ns"] - a_set["start_ns"]
    sums = pl.concat([pl.Series([0], dtype=pl.Int64), length.cum_sum()])
    place = a_set["start_ns"].search_sorted(moments_ns, side="right")
    last = (place.cast(pl.Int64) - 1).clip(0)
    inside = (moments_ns - a_set["start_ns"].gather(last)).clip(0)
    part = pl.select(pl.min_horizontal(inside, length.gather(last))).to_series()
    before: pl.Series = sums.gather(last) + part
    return before


def mean_overlap(starts_ns: pl.Series, ends_ns: pl.Series) -> pl.Series:
    """For each interval, how many intervals (itself included) were open on average while it was.

    | start | end |      | mean |
    | 0     | 10  |  ->  | 1.5  |   alone for half of its time
    | 5     | 10  |      | 2.0  |
    """
    edges = (
        pl.DataFrame(
            {
                "at": pl.concat([starts_ns, ends_ns]),
                "step": pl.concat(
                    [
                        pl.repeat(1, starts_ns.len(), eager=True),
                        pl.repeat(-1, ends_ns.len(), eager=True),
                    ]
                ),
            }
        )
        .group_by("at")
        .agg(pl.col("step").sum())
        .sort("at")
        .with_columns(open=pl.col("step").cum_sum())
        .with_columns(
            area=(
                (pl.col("at").diff().fill_null(0)) * pl.col("open").shift(1).fill_null(0)
            ).cum_sum()
        )
    )
    area = edges.select("at", "area")
    opened = (
        starts_ns.rename("at").to_frame().join(area, on="at", how="left", maintain_order="left")
    )
    closed = ends_ns.rename("at").to_frame().join(area, on="at", how="left", maintain_order="left")
    shares: pl.Series = (closed["area"] - opened["area"]) / (ends_ns - starts_ns)
    return shares
