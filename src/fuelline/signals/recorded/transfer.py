"""Between host and device: how batches are copied over, how often the host waits for a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.facts import TransferFacts
from fuelline.schema.readings import Missing, Signal
from fuelline.schema.wire import Flag, Kind
from fuelline.signals.statistics import ratio, total

if TYPE_CHECKING:
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer


def measure_transfer(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> TransferFacts:
    """Copies, synchronisations and the device's own clock, in the window."""
    mine = timeline.table("events").filter(
        (pl.col("pid") == trainer.pid)
        & (pl.col("tid") == trainer.tid)
        & pl.col("start_ns").is_between(segments.start_ns, segments.end_ns)
    )
    copies = mine.filter((pl.col("kind") == Kind.COPY) & (pl.col("a") > 0))
    copied = copies["a"].cast(pl.Float64) * 1e9
    return TransferFacts(
        pageable_share=_without(copies, Flag.PINNED),
        blocking_share=_without(copies, Flag.NON_BLOCKING),
        bytes_per_s=ratio(copied, copies["dur_ns"], "bytes/s", "copied bytes over time"),
        syncs_per_step=_syncs_per_step(mine, segments),
        device_idle_share=_device_idle_share(mine),
    )


def _without(copies: pl.DataFrame, flag: Flag) -> Signal:
    """Share of the copying time of copies that lack a flag."""
    if not copies.height:
        return Missing(reason="no copy to a device was seen")
    lacks = copies["flags"].cast(pl.Int64) & int(flag) == 0
    return ratio(copies["dur_ns"] * lacks, copies["dur_ns"], "frac", f"copies without {flag.name}")


def _syncs_per_step(mine: pl.DataFrame, segments: StepSegments) -> Signal:
    steps = segments.boundaries.len() - 1
    syncs = mine.filter(pl.col("kind") == Kind.SYNC).height
    return total(syncs / steps, "count", "synchronisations over steps", syncs)


def _device_idle_share(mine: pl.DataFrame) -> Signal:
    steps = mine.filter((pl.col("kind") == Kind.DEVICE_STEP) & (pl.col("b") >= 0))
    if not steps.height:
        return Missing(reason="the device's own clock was not read; that needs CUDA or ROCm")
    return ratio(
        steps["c"], steps["b"] + steps["c"], "frac", "device idle between steps over device time"
    )
