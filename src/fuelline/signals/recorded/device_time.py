"""How long the device takes for a batch, seen from the host alone, without asking the device.

A device that works beside the host is a queue: batch k is launched at l_k, and the device is done
with batch i at the largest of l_k + (i - k + 1) D over all k up to i. Where the host waits for it
(loss.item(), synchronize), that moment e_i is seen, and D is the least (e_i - l_k) / (i - k + 1).
Where the launch queue is full the host is let in once per D. Where neither was ever seen, counters
of the device do; a host without a device computes itself. Otherwise the time is Missing.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.wire import Flag
from fuelline.signals.recorded.budget import COMPUTE_PARTS, device_wait_frac
from fuelline.timeline import events

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.demands import DeviceMode
    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.diagnosis.facts import HotLine
    from fuelline.schema.parts import StepPart
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

PAUSES: tuple[StepPart, ...] = (
    "checkpoint",
    "validation",
    "compile",
    "garbage collection",
    "epoch start",
    "profiler",
)
_LOOK_BACK = 32
"""Batches that may be queued before one; CUDA holds some steps, not tens of them."""
_CLEAR = 5.0
"""A wait for the device stands out if the loop is this many times as long as usual, and at least a
fifth of the usual time between two batches."""
_VISIBLE_FRAC = 0.2
_MOSTLY = 0.5
_REGULAR_FRAC = 0.04
"""Of the usual time between two batches: less could be the scheduler's own doing."""
_LONG_LOOP_FRAC = 0.05
_FEW_SAMPLES = 5
"""Stack samples in the loop's own code that outweigh a regular wait."""
_TRIED = 12
_LEAST_PERIOD = 2
_FEW_WAITS = 3
_FEW_COUNTED = 2
_FEW_STALLS_FRAC = 0.01
"""Fewer loops that stand out than this are the scheduler's doing."""
_ROUND = (5, 10, 20, 25, 50, 100)
"""Numbers of steps after which people read a loss."""
_CLEARLY_APART = 5.0
"""Standard errors between the medians of counted cycles and of the others: 12 series are tried, so
chance finds one in millions of runs; the scheduler's moods are the real risk."""
_NEARLY_ALL = 0.85
"""Any two cycles are equally spaced; three of the longest three are so by chance once in some
hundred runs."""
_BACKED_UP = 3.0
"""A launch that takes this many times as long as the quickest tenth waited for the queue."""
_FEW_BACKED_UP = 5
_SYNC_ERROR = 0.10
"""Relative error of one such wait: the host is woken late, its own code follows. Falls with the
root of their number, not below the next."""
_LEAST_ERROR = 0.02
_QUARTILES = 1.35
"""The quartiles of a normal distribution are this many standard deviations apart."""
_COUNTER_ERROR = 0.10
"""Of utilisation counters: some kernel was there in a sampling period."""


@dataclass(frozen=True)
class DeviceTime:
    """Device time of a batch, and how the device works with the host."""

    seconds: Signal
    mode: DeviceMode
    sync_frac: float
    """Of the batches: the host waited for the device."""
    waited_ns: float
    """In the loop's own time: all waits for the device together."""
    is_counted: bool = False
    """Whether utilisation counters were asked, because the host saw nothing of it."""


def cut_cycles(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> pl.DataFrame:
    """One row a training batch: launch_ns (it arrived), asked_ns (the next was asked for), next_ns.

    `number` counts the batches of the run. And what the trainer did between the first two: loop_ns,
    compute_ns, pause_ns; early_loop_ns and settled_ns are before a pause.
    """
    taken = (
        events.batches(timeline, events.of_thread(trainer.pid, trainer.tid))
        .filter(pl.col("source_id").is_in(trainer.train_sources))
        .sort("start_ns")
        .select(
            has_ended=pl.col("flags").cast(pl.Int64) & int(Flag.END) != 0,
            launch_ns=pl.col("start_ns") + pl.col("dur_ns"),
            asked_ns=pl.col("start_ns").shift(-1),
            next_ns=(pl.col("start_ns") + pl.col("dur_ns")).shift(-1),
        )
        .drop_nulls()
        .filter(~pl.col("has_ended"))
        .with_row_index("number")
        .filter(
            (pl.col("launch_ns") >= segments.start_ns)
            & (pl.col("asked_ns") <= segments.end_ns)
            & (pl.col("asked_ns") > pl.col("launch_ns"))
        )
        .with_row_index("cycle")
    )
    pieces = (
        segments.pieces.sort("start_ns")
        .join_asof(
            taken.select("cycle", start_ns="launch_ns", cycle_end_ns="asked_ns"),
            on="start_ns",
            strategy="backward",
        )
        .filter(pl.col("start_ns") < pl.col("cycle_end_ns"))
        .with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
        .with_columns(
            is_before=pl.col("start_ns")
            < pl.col("start_ns")
            .filter(pl.col("part").is_in(PAUSES))
            .min()
            .over("cycle")
            .fill_null(pl.col("cycle_end_ns"))
        )
    )
    length, part = pl.col("length"), pl.col("part")
    parts = pieces.group_by("cycle").agg(
        loop_ns=length.filter(part.is_in(["loop", "sync"])).sum(),
        early_loop_ns=length.filter(part.is_in(["loop", "sync"]) & pl.col("is_before")).sum(),
        compute_ns=length.filter(part.is_in(COMPUTE_PARTS) & (part != "sync")).sum(),
        pause_ns=length.filter(part.is_in(PAUSES)).sum(),
        settled_ns=pl.col("end_ns").filter(pl.col("is_before")).max(),
    )
    return taken.join(parts, on="cycle", how="left").sort("cycle").fill_null(0)


def read_device_clock(idle_share: Signal, batch_ns: float) -> DeviceTime | None:
    """By the device's own clock, where it was read: the best evidence that there is."""
    if isinstance(idle_share, Missing):
        return None
    busy = 1 - idle_share.value
    doubt = 0.0 if idle_share.high is None else idle_share.high - idle_share.value
    half = max(doubt, 2 * _LEAST_ERROR * busy)
    seconds = Reading(
        value=busy * batch_ns / 1e9,
        unit="s",
        low=max(0.0, busy - half) * batch_ns / 1e9,
        high=(busy + half) * batch_ns / 1e9,
        level=95,
        origin="the device's own clock",
    )
    return DeviceTime(seconds, "beside", 0.0, 0.0)


def measure_device_time(
    cycles: pl.DataFrame,
    lines: list[HotLine],
    devices: list[DeviceFacts],
    *,
    batch_ns: float,
    blocked_frac: float,
    queued_ns: float,
) -> DeviceTime:
    """The device's time for a batch, by what the host saw of it, or by counters.

    `blocked_frac` is how much of the time in compute the trainer was neither on a core nor waiting
    for one, `queued_ns` how long it waited for one in the window.
    """
    if cycles.height < _FEW_BACKED_UP:
        return DeviceTime(Missing(reason="too few batches"), "unknown", 0.0, 0.0)
    waits = _waits(cycles, lines)
    if waits.height:
        seconds = _by_waits(cycles, waits)
        mode: DeviceMode = "within" if waits.height > _MOSTLY * cycles.height else "beside"
        waited = float(waits["excess_ns"].sum())
        return DeviceTime(seconds, mode, waits.height / cycles.height, waited)
    backed_up = _by_full_queue(cycles) if blocked_frac >= _MOSTLY else None
    if backed_up is not None:
        return DeviceTime(backed_up, "beside", 0.0, 0.0)
    if devices:
        seconds = _by_counters(devices, batch_ns)
        return DeviceTime(seconds, "beside", 0.0, 0.0, is_counted=True)
    stalls = _stalls(cycles)
    few = max(_FEW_COUNTED, _FEW_STALLS_FRAC * cycles.height)
    if stalls.len() >= few and float(stalls.sum()) > queued_ns:
        reason = f"the loop stood still {stalls.len()} times, perhaps for the device"
        return DeviceTime(Missing(reason=reason), "unknown", 0.0, 0.0)
    mean_ns = pl.Series([float(cycles["compute_ns"].sum()) / cycles.height])
    seconds = _reading(mean_ns, "compute parts of the host", _LEAST_ERROR)
    return DeviceTime(seconds, "within", 0.0, 0.0)


def _stalls(cycles: pl.DataFrame) -> pl.Series:
    """Loops that stand out clearly: they may have been waits for a device that nobody else saw.

    Unless the trainer waited for a core as long: then the scheduler made them.
    """
    usual = _median(cycles["early_loop_ns"])
    between = _median(cycles["next_ns"] - cycles["launch_ns"])
    launching = _median(cycles["compute_ns"])
    return cycles.filter(
        (pl.col("early_loop_ns") > _CLEAR * usual)
        & (pl.col("early_loop_ns") > _REGULAR_FRAC * between)
        & (pl.col("early_loop_ns") > launching)
    )["early_loop_ns"]


def _waits(cycles: pl.DataFrame, lines: list[HotLine]) -> pl.DataFrame:
    """Cycles in whose loop the host waited for the device.

    Either they come in regular steps (a loss that is read every so many batches) and no stack
    sample says otherwise, or stack samples show the wait.
    """
    usual = _median(cycles["early_loop_ns"])
    between = _median(cycles["next_ns"] - cycles["launch_ns"])
    told = cycles.with_columns(excess_ns=pl.col("early_loop_ns") - usual)
    regular = _regular(told, told.filter(pl.col("excess_ns") > _REGULAR_FRAC * between))
    if regular is not None and not _loop_works(cycles, lines):
        return regular
    counted = _counted(told, _REGULAR_FRAC * between)
    if counted is not None:
        return counted
    large = told.filter(
        (pl.col("early_loop_ns") > _CLEAR * usual) & (pl.col("excess_ns") > _VISIBLE_FRAC * between)
    )
    shown = device_wait_frac(lines) * float(cycles["loop_ns"].sum())
    return large if shown >= _MOSTLY * float(large["excess_ns"].sum()) else large.clear()


def _loop_works(cycles: pl.DataFrame, lines: list[HotLine]) -> bool:
    """Stack samples show the loop's own code, and the loop is long enough to have been hit."""
    waiting, working = (
        sum(line.samples for line in lines if line.stage == stage) for stage in ("sync", "loop")
    )
    wall = float((cycles["next_ns"] - cycles["launch_ns"]).sum())
    is_hit = float(cycles["loop_ns"].sum()) > _LONG_LOOP_FRAC * wall
    return is_hit and working > waiting + _FEW_SAMPLES


def _regular(told: pl.DataFrame, outlying: pl.DataFrame) -> pl.DataFrame | None:
    """The longest series of equally spaced cycles that are nearly all among the longest ones."""
    ranks = told["excess_ns"].rank("ordinal", descending=True)
    top = sorted(outlying.top_k(_TRIED, by="excess_ns")["cycle"].to_list())
    best: list[int] = []
    offset = int(told["number"][0])
    for first, second in itertools.combinations(top, 2):
        period = second - first
        members = list(range(first % period, told.height, period))
        # Loops count from 0 or from 1: a wait at multiples of a number is no chance.
        phase = (offset + first) % period
        few = _FEW_COUNTED if phase in (0, period - 1) else _FEW_WAITS
        if period < _LEAST_PERIOD or len(members) < max(few, len(best) + 1):
            continue
        places = ranks.gather(members)
        allowed = len(members) + math.ceil(len(members) / 4)
        if (places <= allowed).sum() >= _NEARLY_ALL * len(members):
            best = members
    return told.filter(pl.col("cycle").is_in(best)) if best else None


def _counted(told: pl.DataFrame, least_ns: float) -> pl.DataFrame | None:
    """Cycles at every tenth step or the like whose loops are longer, where all loops are long."""
    best: tuple[float, pl.DataFrame | None] = (_CLEARLY_APART, None)
    for period, phase in itertools.product(_ROUND, (0, -1)):
        is_member = (pl.col("number").cast(pl.Int64) - phase) % period == 0
        members, others = told.filter(is_member), told.filter(~is_member)
        if members.height < _FEW_WAITS or others.height < _FEW_WAITS:
            continue
        apart = _median(members["excess_ns"]) - _median(others["excess_ns"])
        error = _spread(others["excess_ns"]) / math.sqrt(members.height)
        if apart > max(least_ns, best[0] * error):
            best = (apart / max(error, 1.0), members)
    return best[1]


def _by_waits(cycles: pl.DataFrame, waits: pl.DataFrame) -> Signal:
    launches = cycles["launch_ns"]
    # The loop's own code comes after the wait.
    ends = waits["settled_ns"].cast(pl.Float64) - _median(cycles["early_loop_ns"])
    at = waits["cycle"].cast(pl.Int64)
    shares = []
    for back in range(min(_LOOK_BACK, cycles.height)):
        index = at - back
        known = index >= 0
        begun = launches.gather(index.clip(0, None)).cast(pl.Float64)
        share = (ends - begun) / (back + 1)
        shares.append(pl.select(pl.when(known).then(share)).to_series().rename(str(back)))
    least = pl.DataFrame(shares).min_horizontal()
    # A host that is woken late adds to the time and never takes from it: the lower quarter counts.
    return _reading(least, "waits for the device", _SYNC_ERROR / math.sqrt(least.len()), 0.25)


def _by_full_queue(cycles: pl.DataFrame) -> Signal | None:
    """Intervals of cycles in which the host was held up launching and hardly waited for input."""
    quickest = float(cycles["compute_ns"].quantile(0.1) or 0.0)
    held = cycles.filter(
        (pl.col("compute_ns") > _BACKED_UP * quickest)
        & (pl.col("pause_ns") == 0)
        & (pl.col("compute_ns") > _MOSTLY * (pl.col("next_ns") - pl.col("launch_ns")))
    )
    if held.height < _FEW_BACKED_UP:
        return None
    lengths = held["next_ns"] - held["launch_ns"]
    mean = float((cycles["next_ns"] - cycles["launch_ns"]).sum()) / cycles.height
    # Each batch keeps the device as long as that: it cannot be longer than a batch lasts.
    if _median(lengths) > (1 + 2 * _SYNC_ERROR) * mean:
        return None
    return _reading(lengths, "launches that had to wait", _SYNC_ERROR)


def _by_counters(devices: list[DeviceFacts], batch_ns: float) -> Signal:
    shares = [device.utilisation for device in devices if isinstance(device.utilisation, Reading)]
    if not shares:
        return Missing(
            reason="the host never waited for the device, and its utilisation could not be read"
        )
    value = max(share.value for share in shares) * batch_ns / 1e9
    return Reading(
        value=value,
        unit="s",
        low=value * (1 - 2 * _COUNTER_ERROR),
        high=value * (1 + 2 * _COUNTER_ERROR),
        level=95,
        origin="utilisation of the device",
    )


def _reading(times_ns: pl.Series, origin: str, error_frac: float, middle: float = 0.5) -> Signal:
    value = float(times_ns.quantile(middle, "linear") or 0.0) / 1e9
    if value <= 0:
        return Missing(reason=f"{origin}: none")
    spread = _spread(times_ns) / 1e9 / math.sqrt(times_ns.len())
    half = 2 * max(spread, error_frac * value, _LEAST_ERROR * value)
    return Reading(
        value=value,
        unit="s",
        low=max(0.0, value - half),
        high=value + half,
        level=95,
        count=times_ns.len(),
        origin=origin,
    )


def _spread(series: pl.Series) -> float:
    """Standard deviation, from the quartiles."""
    return float((series.quantile(0.75) or 0.0) - (series.quantile(0.25) or 0.0)) / _QUARTILES


def _median(series: pl.Series) -> float:
    return float(series.quantile(0.5, "linear") or 0.0)
