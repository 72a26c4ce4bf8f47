"""Kernels by name and by class: time, count, spread, graphs, roofline, and what compute hides.

Also here: which kernels do the work of which operators, for the roofline.

A profiler writes the operator's number beside a kernel. Some write the launch's number in that
place instead, which may be that of any operator: there the operator is the one within which the
host launched the kernel. A kernel whose operator is not known has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.plan.chips import find_peak_bytes, find_peak_flops
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.run.trace import HostKind, KernelFacts
from fuelline.signals.traced.kernels.lane import COMPUTE, COPY
from fuelline.signals.traced.kernels.names import COMMUNICATION
from fuelline.timeline.intervals import SPAN, intersect, merge, total_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.run.trace import ChipFacts
    from fuelline.signals.traced.kernels.lane import DeviceLane
    from fuelline.timeline.trace import Trace


MOST_KERNELS = 20
_MOSTLY = 0.5
"""Launches of a kernel whose work must be known to place it on the roofline."""


def rank_kernels(
    trace: Trace, lanes: Sequence[DeviceLane]
) -> tuple[list[KernelFacts], list[KernelFacts]]:
    """The top kernels by time, and all classes."""
    events = _together([_worked(trace, lane) for lane in lanes])
    chip = next((chip for lane in lanes for chip in lane.facts.chips), None)
    hidden = {name: _find_hidden(lanes, name) for name in (COMMUNICATION, COPY)}
    return (
        [_facts(row, chip) for row in _rank(events, "text").head(MOST_KERNELS).to_dicts()],
        [
            msgspec.structs.replace(_facts(row, chip), hidden=hidden.get(str(row["name"])))
            for row in _rank(events, "class").to_dicts()
        ],
    )


def _find_hidden(lanes: Sequence[DeviceLane], family: str) -> float | None:
    """The share of a family's time, over all devices, during which something else computed."""
    whole_ns = beside_ns = 0
    for lane in lanes:
        for device in lane.devices:
            events = lane.of(device)
            spans = merge(events.filter(pl.col("family") == family).select(*SPAN))
            whole_ns += total_ns(spans)
            compute = merge(events.filter(pl.col("family") == COMPUTE).select(*SPAN))
            beside_ns += total_ns(intersect(spans, compute))
    return beside_ns / whole_ns if whole_ns else None


def _worked(trace: Trace, lane: DeviceLane) -> pl.DataFrame:
    """Device events with the work of the operator they belong to, if it launched only them."""
    events = lane.events.select(
        "text",
        "class",
        "tensor",
        "kind",
        "graph",
        (pl.col("end_ns") - pl.col("start_ns")).alias("took_ns"),
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
    )
    work = find_work(trace, lane, events["took_ns"])
    return events.join(work, on="row", how="left", maintain_order="left").drop("row")


def _together(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Of all lanes, each of which has names of its own."""
    if len(frames) == 1:
        return frames[0]
    return pl.concat(
        [frame.with_columns(pl.col("text", "class").cast(pl.String)) for frame in frames]
    )


def _rank(events: pl.DataFrame, column: str) -> pl.DataFrame:
    took = pl.col("took_ns")
    whole = max(1, int(events["took_ns"].sum()))
    known = pl.col("flops").is_not_null()
    return (
        events.group_by(column)
        .agg(
            pl.col("class").first().alias("kind"),
            pl.len().alias("count"),
            took.sum().alias("ns"),
            took.mean().alias("mean_ns"),
            took.median().alias("p50_ns"),
            took.quantile(0.95, "linear").alias("p95_ns"),
            took.std().alias("std_ns"),
            pl.col("graph").is_not_null().sum().alias("graphs"),
            pl.col("tensor").fill_null(value=False).any().alias("tensor_core"),
            pl.col("flops").sum(),
            pl.col("least_bytes").sum(),
            took.filter(known).sum().alias("known_ns"),
        )
        .rename({column: "name"})
        .with_columns((pl.col("ns") / whole).alias("share"))
        .sort("ns", "name", descending=[True, False])
    )


def _facts(row: dict[str, object], chip: ChipFacts | None) -> KernelFacts:
    mean = float(row["mean_ns"])  # type: ignore[arg-type]
    std = row["std_ns"]
    rate, bound = _roofline(row, chip)
    return KernelFacts(
        name=str(row["name"]),
        kind=str(row["kind"]),
        count=int(row["count"]),  # type: ignore[call-overload]
        seconds=float(row["ns"]) / 1e9,  # type: ignore[arg-type]
        share=float(row["share"]),  # type: ignore[arg-type]
        mean_seconds=mean / 1e9,
        p50_seconds=float(row["p50_ns"]) / 1e9,  # type: ignore[arg-type]
        p95_seconds=float(row["p95_ns"]) / 1e9,  # type: ignore[arg-type]
        spread=float(std) / mean if isinstance(std, float) and mean > 0 else None,
        graph_count=int(row["graphs"]),  # type: ignore[call-overload]
        flops_per_s=rate,
        bound=bound,
        tensor_core=bool(row["tensor_core"]),
    )


def _roofline(row: dict[str, object], chip: ChipFacts | None) -> tuple[Signal, str | None]:
    """Achieved rate, and which roof is lower at this intensity."""
    flops, known_ns = float(row["flops"]), float(row["known_ns"])  # type: ignore[arg-type]
    if flops <= 0 or known_ns < _MOSTLY * float(row["ns"]):  # type: ignore[arg-type]
        return Missing(reason="no recorded shapes give the work of these kernels"), None
    rate = Reading(value=flops / known_ns * 1e9, unit="count/s", origin="operations from shapes")
    least_bytes = float(row["least_bytes"])  # type: ignore[arg-type]
    if chip is None or least_bytes <= 0:
        return rate, None
    peak = chip.peak_flops_per_s or find_peak_flops(chip.name)
    memory = chip.peak_bytes_per_s or find_peak_bytes(chip.name)
    if peak is None or memory is None:
        return rate, None
    return rate, "memory" if flops / least_bytes < peak / memory else "compute"


_WORKING = ("attention", "convolution", "gemm")
"""Classes of kernels that do what operators with countable work ask for."""
_CALL_COLUMNS = ("start_ns", "kind", "correlation")


def find_work(trace: Trace, lane: DeviceLane, took_ns: pl.Series) -> pl.DataFrame:
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
