"""The utilisation ladder of a device from its trace: from "some kernel was there" to useful math.

Kernels that run at once add up, but a chip is never more than full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.devices import Rung
from fuelline.schema.plan.chips import find_peak_flops
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.run.trace import TRACE_RUNGS, DeviceKind
from fuelline.signals.traced.kernels.lane import COPY, WAVEFRONT
from fuelline.timeline.intervals import merge, total_ns

if TYPE_CHECKING:
    from fuelline.schema.run.trace import ChipFacts
    from fuelline.signals.traced.ledger import Account
    from fuelline.timeline.trace import Trace

_MOSTLY = 0.9
"""Share of kernel time whose grid must be known to speak of all of it."""

_FEWEST_SAMPLES = 10
"""Of a counter: a mean of fewer is off by more than the estimate from the kernels."""
_MIXED_GRIDS = Missing(
    reason="for most of the kernel time the grid was not recorded, or not in what it counts (AMD's "
    "tracer counts some in blocks and others in threads)"
)


_ROWS = 65_536
"""Kernels that are stacked at a time."""

_CLIMBED = ("start_ns", "end_ns", "kind", "blocks", "threads", "occupancy", "tensor")
"""What the rungs are made of; the rest of a large table need not be copied."""


def climb(trace: Trace, account: Account, chip: ChipFacts | None, devices: int) -> list[Rung]:
    """All rungs in order; one that the trace does not carry says why."""
    events = account.events.select(*_CLIMBED, "family").filter(pl.col("family") != COPY)
    wall_ns = account.ledger.wall_ns
    sampled = _read_sampled(trace, account)
    signals = (
        # NVML counts kernels only: copies run on engines of their own
        # (nvmlUtilization_t: "one or more kernels was executing on the GPU").
        _share(total_ns(merge(events)), wall_ns, "union of kernels over wall"),
        sampled.get("gpm.sm_frac") or _fill(events, wall_ns, chip),
        _occupancy(events, wall_ns, chip),
        sampled.get("gpm.tensor_frac") or _tensor(events, wall_ns),
        _mfu(trace, account, chip, devices),
    )
    return [
        Rung(rung=rung, share=signal) for rung, signal in zip(TRACE_RUNGS, signals, strict=True)
    ]


def _read_sampled(trace: Trace, account: Account) -> dict[str, Signal]:
    """Rungs that the chip counted itself while the device's events lasted, by counter."""
    ledger = account.ledger
    end_ns = ledger.start_ns + ledger.wall_ns
    means = (
        trace.table("counters", ledger.rank)
        .filter(
            (pl.col("device") == ledger.device)
            & pl.col("at_ns").is_between(ledger.start_ns, end_ns)
        )
        .group_by("name")
        .agg(pl.col("value").mean(), pl.len())
    )
    return {
        name: Reading(value=value, unit="frac", count=count, origin=f"sampled by the chip: {name}")
        for name, value, count in means.iter_rows()
        if count >= _FEWEST_SAMPLES
    }


def _share(spent_ns: float, wall_ns: int, origin: str) -> Signal:
    return Reading(value=spent_ns / wall_ns, unit="frac", origin=origin)


def _tensor(events: pl.DataFrame, wall_ns: int) -> Signal:
    """Kernels that use matrix units, by their names; phases of a step have no such names."""
    if (events["kind"] == int(DeviceKind.COMPUTE)).any():
        return Missing(reason="the trace has phases of steps, not the kernels they are made of")
    spent_ns = total_ns(merge(events.filter(pl.col("tensor"))))
    return _share(spent_ns, wall_ns, "kernels whose names refer to matrix units, over wall")


def _fill(events: pl.DataFrame, wall_ns: int, chip: ChipFacts | None) -> Signal:
    """Blocks over multiprocessors, at most one each."""
    if chip is None or not chip.sm_count:
        return Missing(reason="the trace does not say how many multiprocessors the chip has")
    if not _knows(events, "blocks"):
        if chip.warp_size == WAVEFRONT:
            return _MIXED_GRIDS
        return Missing(reason="grid sizes were not recorded for most of the kernel time")
    weight = (pl.col("blocks") / chip.sm_count).clip(0, 1)
    return _share(_stack(events, weight), wall_ns, "blocks over multiprocessors over wall")


def _occupancy(events: pl.DataFrame, wall_ns: int, chip: ChipFacts | None) -> Signal:
    """As the profiler estimates it, else threads over what the chip can hold."""
    if _knows(events, "occupancy"):
        spent = _stack(events, pl.col("occupancy").cast(pl.Float64).clip(0, 1))
        return _share(spent, wall_ns, "the profiler's estimate over wall")
    if chip is None or not chip.sm_count or not chip.max_threads_per_sm:
        return Missing(reason="the trace has neither an estimate nor what the chip can hold")
    if not _knows(events, "blocks") or not _knows(events, "threads"):
        if chip.warp_size == WAVEFRONT:
            return _MIXED_GRIDS
        return Missing(reason="grid and block sizes were not recorded for most of the kernel time")
    room = chip.sm_count * chip.max_threads_per_sm
    weight = (pl.col("blocks") * pl.col("threads") / room).clip(0, 1)
    return _share(_stack(events, weight), wall_ns, "threads over what the chip can hold, over wall")


def _knows(events: pl.DataFrame, column: str) -> bool:
    took = (events["end_ns"] - events["start_ns"]).cast(pl.Float64)
    known = took.filter(events[column].is_not_null()).sum()
    return bool(took.sum() > 0 and known >= _MOSTLY * took.sum())


def _stack(events: pl.DataFrame, weight: pl.Expr) -> float:
    """Nanoseconds by weight, where overlapping kernels, in order, share one chip.

    Some at a time: edges of all of them need as much memory as the events. Edges that the next
    ones may lie before are carried over, and so is the weight that is open by then.
    """
    spent, carried, open_weight = 0.0, _edges(events.clear(), weight), 0.0
    for part in events.iter_slices(_ROWS):
        edges = pl.concat([carried, _edges(part, weight)]).sort("at")
        last = int(edges["at"].search_sorted(part["start_ns"][-1], side="left"))
        spent += _area(edges.head(last + 1), open_weight)
        open_weight += float(edges["weight"].head(last).sum())
        carried = edges.slice(last)
    return spent + _area(carried, open_weight)


def _edges(events: pl.DataFrame, weight: pl.Expr) -> pl.DataFrame:
    """| at | weight |: what begins and, below zero, what ends."""
    known = weight.fill_null(0.0).cast(pl.Float64)
    begins = events.select(pl.col("start_ns").alias("at"), known.alias("weight"))
    ends = events.select(pl.col("end_ns").alias("at"), (-known).alias("weight"))
    return pl.concat([begins, ends])


def _area(edges: pl.DataFrame, open_weight: float) -> float:
    """Between the first of these edges and the last, with what is open before.

    Edges at the same moment need no order: what lies between them lasts no time.
    """
    level = (edges["weight"].cum_sum() + open_weight).clip(0, 1)
    return float((level * edges["at"].diff().shift(-1).fill_null(0)).sum())


def _from_graphs(events: pl.DataFrame) -> bool:
    """Whether much of the arithmetic was launched by graphs."""
    took = pl.col("end_ns") - pl.col("start_ns")
    math = events.select("start_ns", "end_ns", "graph", "class").filter(
        pl.col("class").is_in(["gemm", "attention", "convolution"])
    )
    whole = math.select(took.sum()).item()
    from_graph = math.filter(pl.col("graph").is_not_null()).select(took.sum()).item()
    return bool(whole and from_graph > (1 - _MOSTLY) * whole)


def _mfu(trace: Trace, account: Account, chip: ChipFacts | None, devices: int) -> Signal:
    ledger = account.ledger
    if devices > 1:
        return Missing(reason="operators of several devices are in one trace")
    if _from_graphs(account.events):
        return Missing(reason="graphs launched the kernels; their operators are not recorded")
    peak = None
    if chip is not None:
        peak = chip.peak_flops_per_s or find_peak_flops(chip.name)
    if peak is None:
        name = chip.name if chip is not None and chip.name else "the chip"
        return Missing(reason=f"no peak rate is known for {name}")
    ops = trace.table("ops", ledger.rank)
    if not ops.height:
        return Missing(reason="no operator with countable work was recorded")
    unknown = ops["flops"].null_count()
    if unknown:
        return Missing(
            reason=f"the work of {unknown} of {ops.height} operators is not recorded: profile "
            "with record_shapes=True"
        )
    done = float(ops["flops"].sum())
    return Reading(
        value=done / (peak * ledger.wall_ns / 1e9),
        unit="frac",
        count=ops.height,
        origin="operations from shapes, over the chip's dense half-precision rate",
    )
