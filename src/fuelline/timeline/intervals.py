"""Interval algebra on columns of start and end times.

A *set* is a frame with columns `start_ns` and `end_ns` whose intervals are sorted, not empty, and
neither overlap nor touch; `merge` makes one of any intervals. Everything here is whole columns at a
time and is tested against a naive oracle that counts single nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


SPAN = ("start_ns", "end_ns")
_NOTHING = {"start_ns": pl.Int64(), "end_ns": pl.Int64()}


def merge(intervals: pl.DataFrame) -> pl.DataFrame:
    """The set of all moments that some interval covers.

    | start | end |      | start | end |
    | 0     | 10  |  ->  | 0     | 12  |
    | 5     | 12  |      | 20    | 21  |
    | 20    | 21  |
    """
    ordered = intervals.select(SPAN).filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns")
    if not ordered.height:
        return nothing()
    reach = ordered["end_ns"].cum_max()
    is_first = (ordered["start_ns"] > reach.shift(1)).fill_null(value=True)
    is_last = is_first.shift(-1).fill_null(value=True)
    return pl.DataFrame(
        {"start_ns": ordered["start_ns"].filter(is_first), "end_ns": reach.filter(is_last)}
    )


def merge_all(sets: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The set of all moments that some of these frames cover."""
    return merge(pl.concat([nothing(), *(each.select(SPAN) for each in sets)]))


def nothing() -> pl.DataFrame:
    """The empty set."""
    return pl.DataFrame(schema=_NOTHING)


def total_ns(a_set: pl.DataFrame) -> int:
    """How long a set lasts."""
    return int((a_set["end_ns"] - a_set["start_ns"]).sum())


def intersect(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Moments in both sets."""
    if not one.height or not other.height:
        return nothing()
    return _where(one, other, pl.col("in_one") & pl.col("in_other"))


def subtract(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Moments in the first set and not in the second."""
    if not one.height or not other.height:
        return one.select(SPAN)
    return _where(one, other, pl.col("in_one") & ~pl.col("in_other"))


def _where(one: pl.DataFrame, other: pl.DataFrame, wanted: pl.Expr) -> pl.DataFrame:
    pieces = _cut([one, other]).select(
        *SPAN, (pl.col("open_0") > 0).alias("in_one"), (pl.col("open_1") > 0).alias("in_other")
    )
    return merge(pieces.filter(wanted))


def _cut(layers: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The line cut at every edge; `open_N` is how many intervals of layer N lie over a piece."""
    edges = pl.concat(
        [
            pl.DataFrame({"at": layer[column], "layer": pl.repeat(place, layer.height, eager=True)})
            .cast({"layer": pl.Int32})
            .with_columns(step=pl.lit(step, pl.Int32))
            for place, layer in enumerate(layers)
            for column, step in (("start_ns", 1), ("end_ns", -1))
        ]
    ).sort("at")
    opened = [
        pl.when(pl.col("layer") == place).then("step").otherwise(0).cum_sum().alias(f"open_{place}")
        for place in range(len(layers))
    ]
    return (
        edges.with_columns(opened)
        .select(
            pl.col("at").alias("start_ns"),
            pl.col("at").shift(-1).alias("end_ns"),
            pl.col("^open_.*$"),
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )


def partition(whole: pl.DataFrame, layers: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The moments of a set, each given to the first layer that covers it.

    | start_ns | end_ns | layer |   in order of time; `layer` is null where none does
    """
    covering: list[pl.Expr] = [
        pl.when(pl.col(f"open_{n + 1}") > 0).then(pl.lit(n, pl.Int32)) for n in range(len(layers))
    ]
    first = pl.coalesce([*covering, pl.lit(None, pl.Int32)])
    # What lies outside of the set need not be sorted into it: mostly, that is nearly everything.
    near = [layer.filter(covered_ns(layer, whole) > 0) for layer in layers]
    return (
        _cut([whole, *near])
        .filter(pl.col("open_0") > 0)
        .select(*SPAN, first.alias("layer"))
        .sort("start_ns")
    )


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
