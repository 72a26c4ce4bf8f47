"""Which kernels do the work of which operators, for the roofline.

A profiler writes the operator's number beside a kernel. Some write the launch's number in that
place instead, which may be that of any operator: there the operator is the one within which the
host launched the kernel. A kernel whose operator cannot be told has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.trace import HostKind

if TYPE_CHECKING:
    from fuelline.signals.traced.lane import Lane
    from fuelline.timeline.trace import Trace

_WORKING = ("attention", "convolution", "gemm")
"""Classes of kernels that do what operators with countable work ask for."""
_CALL_COLUMNS = ("start_ns", "kind", "correlation")


def find_work(trace: Trace, lane: Lane, took_ns: pl.Series) -> pl.DataFrame:
    """| row | flops | least_bytes | of the events that do an operator's work."""
    ops = (
        trace.table("ops", lane.rank)
        .filter(pl.col("flops").is_not_null())
        .sort("start_ns", maintain_order=True)
        .with_row_index("op")
    )
    kernels = (
        lane.events.select("external", "correlation", "class", took_ns)
        .with_row_index("row")
        .filter(pl.col("class").is_in(_WORKING))
    )
    if ops.height and _are_launches(kernels):
        launched = _within(ops, _find_launches(trace, lane.rank, kernels))
    else:
        numbered = ops.select("external", "op").unique("external", keep="first")
        launched = kernels.join(numbered, on="external")
    # An operator may launch several of them; its work is done by the longest.
    main = pl.col("took_ns") == pl.col("took_ns").max().over("op")
    return (
        launched.filter(main)
        .join(ops.select("op", "flops", "least_bytes"), on="op")
        .select("row", "flops", "least_bytes")
    )


def _are_launches(kernels: pl.DataFrame) -> bool:
    """Whether the numbers of operators are those of launches, one for one."""
    named = kernels.drop_nulls("external")
    return named.height > 0 and bool((named["external"] == named["correlation"]).all())


def _find_launches(trace: Trace, rank: int, kernels: pl.DataFrame) -> pl.DataFrame:
    """Kernels with the moment at which the host launched them, in its order."""
    asked = kernels["correlation"].drop_nulls().unique()
    is_launch = (pl.col("kind") == int(HostKind.RUNTIME)) & pl.col("correlation").is_in(
        asked.implode()
    )
    calls = [part.filter(is_launch) for part in trace.parts("host", rank, _CALL_COLUMNS)]
    if not calls:
        return kernels.with_columns(pl.lit(None, pl.Int64).alias("call_ns")).clear()
    first = pl.concat(calls).group_by("correlation").agg(pl.col("start_ns").min().alias("call_ns"))
    return kernels.join(first, on="correlation").sort("call_ns", "row")


def _within(ops: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Launches with the operator that had begun last, if it had not ended."""
    spans = ops.select("op", pl.col("start_ns").alias("call_ns"), "end_ns")
    return launches.join_asof(spans, on="call_ns", strategy="backward").filter(
        pl.col("call_ns") < pl.col("end_ns")
    )
