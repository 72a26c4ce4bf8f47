"""Interval algebra on columns of start and end times."""

from __future__ import annotations

import polars as pl


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
