"""Between host and device: how batches are copied over, how often the host waits for a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.facts import TransferFacts
from fuelline.schema.readings import Missing, Signal
from fuelline.schema.wire import Flag
from fuelline.signals.recorded.budget import hide
from fuelline.signals.statistics import ratio, total
from fuelline.timeline import events

if TYPE_CHECKING:
    from fuelline.schema.parts import StepPart
    from fuelline.signals.recorded.device_marks import DeviceSide
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer


def measure_transfer(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, side: DeviceSide
) -> TransferFacts:
    """Copies, synchronisations and the device's own clock, in the window.

    A call that copies also waits for what was queued before it: the device knows how long it took.
    """
    within = pl.col("start_ns").is_between(segments.start_ns, segments.end_ns)
    mine = events.of_thread(trainer.pid, trainer.tid) & within
    copies = events.copies(timeline, mine).filter(pl.col("size_bytes") > 0)
    copied = copies["size_bytes"].cast(pl.Float64) * 1e9
    return TransferFacts(
        pageable_share=_without(copies, Flag.PINNED),
        blocking_share=_without(copies, Flag.NON_BLOCKING),
        bytes_per_s=ratio(copied, copies["dur_ns"], "bytes/s", "copied bytes over time")
        if side.budget is None or side.copy_ns <= 0
        else total(
            float(copied.sum()) / side.copy_ns,
            "bytes/s",
            "copied bytes over the device's time",
            copies.height,
        ),
        syncs_per_step=_syncs_per_step(
            events.synchronisations(timeline, mine & ~events.is_own()).height, segments
        ),
        device_idle_share=_device_idle_share(events.device_steps(timeline, mine))
        if side.budget is None
        else side.idle_share,
    )


def measure_hidden_copies(segments: StepSegments, side: DeviceSide) -> dict[StepPart, float]:
    """Of the host's time in copies: waiting for the device's earlier work, which is no copying."""
    if side.budget is None:
        return {}
    pieces = segments.pieces.filter(pl.col("part") == "transfer")
    spent_ns = float((pieces["end_ns"] - pieces["start_ns"]).sum())
    return {"transfer": hide(side.copy_ns, spent_ns)}


def _without(copies: pl.DataFrame, flag: Flag) -> Signal:
    """Share of the copying time of copies that lack a flag."""
    if not copies.height:
        return Missing(reason="no copy to a device was seen")
    lacks = copies["flags"].cast(pl.Int64) & int(flag) == 0
    return ratio(copies["dur_ns"] * lacks, copies["dur_ns"], "frac", f"copies without {flag.name}")


def _syncs_per_step(syncs: int, segments: StepSegments) -> Signal:
    steps = segments.boundaries.len() - 1
    return total(syncs / steps, "count", "synchronisations over steps", syncs)


def _device_idle_share(seen: pl.DataFrame) -> Signal:
    steps = seen.filter(pl.col("busy_ns") >= 0)
    if not steps.height:
        return Missing(reason="the device's own clock was not read; that needs CUDA or ROCm")
    return ratio(
        steps["idle_before_ns"],
        steps["busy_ns"] + steps["idle_before_ns"],
        "frac",
        "device idle between steps over device time",
    )
