"""Power samples as energy: of the window, a step and a sample, and what waiting draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.devices import EnergyFacts
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.signals.statistics import ratio, total

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.diagnosis.findings import StepStats
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import Span

_POWER = "power.draw_watts"
_LEAST = 0.05
"""Quantile of the power samples that stands for the least: one reading may be a slip."""
_NO_POWER = Missing(reason="no accelerator's power was read")
_NO_RAPL = Missing(
    reason="the processors' energy counters (/sys/class/powercap) are not there, or not readable "
    "for this user"
)


def measure_energy(
    timeline: Timeline, span: Span, devices: list[DeviceFacts], steps: StepStats
) -> EnergyFacts:
    """Energy in the window of the job's accelerators on this host, and of the host itself."""
    host = _measure_host(timeline, span)
    named = [each.device for each in devices]
    power = timeline.table("devices").filter(
        (pl.col("name") == _POWER) & pl.col("device").is_in(named)
    )
    inside = power.filter(pl.col("at_ns").is_between(span.start_ns, span.end_ns))
    if inside["device"].n_unique() < max(len(named), 1):
        return EnergyFacts(host_watts=host)
    means = [
        ratio(own["value"], pl.repeat(1.0, own.height, eager=True), "W", _POWER)
        for own in inside.partition_by("device")
    ]
    watts = _add(means)
    least = power.group_by("device").agg(pl.col("value").quantile(_LEAST))["value"]
    batch = steps.samples_per_s
    return EnergyFacts(
        watts=watts,
        least_watts=total(float(least.sum()), "W", f"least {_POWER}", power.height),
        joules_per_step=_times(watts, steps.mean, "mean power x step"),
        joules_per_sample=_times(watts, 1 / batch if batch else None, "mean power x sample"),
        host_watts=host,
    )


def _add(parts: list[Signal]) -> Signal:
    """A sum of means, with the sum of their doubts: devices of a job go up and down together."""
    read = [each for each in parts if isinstance(each, Reading)]
    if not read:
        return _NO_POWER
    value = sum(each.value for each in read)
    if any(each.low is None or each.high is None for each in read):
        return total(value, "W", _POWER, read[0].count)
    return Reading(
        value=value,
        unit="W",
        low=sum(each.low or 0.0 for each in read),
        high=sum(each.high or 0.0 for each in read),
        level=95,
        count=read[0].count,
        origin=_POWER,
    )


def _times(watts: Signal, seconds: float | None, origin: str) -> Signal:
    if isinstance(watts, Missing):
        return watts
    if not seconds:
        return Missing(reason="no steps, or no samples, were counted")
    return Reading(
        value=watts.value * seconds,
        unit="J",
        low=None if watts.low is None else watts.low * seconds,
        high=None if watts.high is None else watts.high * seconds,
        level=watts.level,
        count=watts.count,
        origin=origin,
    )


def _measure_host(timeline: Timeline, span: Span) -> Signal:
    rows = timeline.table("host").filter(
        pl.col("name").str.starts_with("energy.package")
        & pl.col("at_ns").is_between(span.start_ns, span.end_ns)
    )
    grown = rows.group_by("name").agg(
        joules=pl.col("value").max() - pl.col("value").min(),
        took_ns=pl.col("at_ns").max() - pl.col("at_ns").min(),
    )
    known = grown.filter(pl.col("took_ns") > 0)
    if not known.height:
        return _NO_RAPL
    watts = float((known["joules"] / (known["took_ns"] / 1e9)).sum())
    return total(watts, "W", "energy.package", rows.height)
