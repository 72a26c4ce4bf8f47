"""Steps in buckets, at several levels, so that a long run is drawn from little.

No bucket loses its extremes: its shortest, middle and longest step come along. A job of 36,000
steps becomes 4,096 buckets and coarser levels of them, whatever its length.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.picture import StepLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.parts import Part

MOST_BUCKETS = 4096
"""Of the finest level: two for each pixel of a wide screen, in 350 kB (bench/page_size.py)."""
COARSER = 4
_FEWEST = 256
"""A level with fewer buckets needs none above it."""


def find_levels(steps: pl.DataFrame, parts: Sequence[Part]) -> list[StepLevel]:
    """Of a row per step: step, length_ns, is_step, and a column a part in ns.

    What follows the last step (`is_step` is false) is a bucket of its own, with no step in it.
    """
    each = math.ceil(steps.height / MOST_BUCKETS)
    rounded = steps.with_columns((pl.exclude("step", "is_step") + 500) // 1000)
    present = [part for part in parts if part in steps.columns]
    levels = [_level(rounded, each, present)]
    while len(levels[-1].steps) > _FEWEST:
        each *= COARSER
        levels.append(_level(rounded, each, present))
    return levels


def _level(steps: pl.DataFrame, each: int, known: list[Part]) -> StepLevel:
    parts = [part for part in known if steps[part].sum()]
    length = pl.col("length_ns").filter("is_step")
    bucket = pl.when("is_step").then(pl.int_range(pl.len()) // each).otherwise(pl.len())
    rows = (
        steps.with_columns(bucket=bucket)
        .group_by("bucket", maintain_order=True)
        .agg(
            pl.col("is_step").sum().cast(pl.Int64).alias("steps"),
            pl.col("length_ns").sum().alias("length"),
            length.min().fill_null(0).cast(pl.Int64).alias("least"),
            length.median().fill_null(0).round().cast(pl.Int64).alias("median"),
            length.quantile(0.95, "linear").fill_null(0).round().cast(pl.Int64).alias("p95"),
            length.max().fill_null(0).cast(pl.Int64).alias("most"),
            *(pl.col(part).sum().alias(f"part {part}") for part in parts),
        )
        .filter(pl.col("length") > 0)
    )
    columns = {name: rows[name].to_list() for name in rows.columns}
    return StepLevel(
        steps=columns["steps"],
        length_us=columns["length"],
        parts_us={part: columns[f"part {part}"] for part in parts},
        least_us=columns["least"],
        median_us=columns["median"],
        p95_us=columns["p95"],
        most_us=columns["most"],
    )
