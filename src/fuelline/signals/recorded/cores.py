"""What cores the job may use, what it got, and who had the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.facts import CoreFacts
from fuelline.schema.readings import Missing, Signal
from fuelline.signals.recorded.counters import growth, process_growth
from fuelline.signals.statistics import total

if TYPE_CHECKING:
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import Tiling

_UNSEEN = Missing(reason="the observer left no counters for the window")


def measure_cores(timeline: Timeline, tiling: Tiling, ranks: int) -> CoreFacts:
    """Cores allowed, used, idle and taken by others, on average over the window."""
    limits = timeline.limits_within(tiling.start_ns, tiling.end_ns)
    used = _job_cores(timeline, tiling)
    wall_ns = tiling.wall_ns
    busy = growth(timeline, tiling, "cpu.busy_ns")
    idle = growth(timeline, tiling, "cpu.idle_ns")
    periods = growth(timeline, tiling, "cgroup.cpu.periods")
    throttled = growth(timeline, tiling, "cgroup.cpu.throttled_periods")
    return CoreFacts(
        allowed=_UNSEEN
        if limits is None
        else total(
            min(float(limits.cpus_allowed), limits.quota_cores or float("inf")), "cores", "limits"
        ),
        host=_UNSEEN if limits is None else total(limits.host_cpus, "cores", "limits"),
        used=used,
        idle=_UNSEEN if idle is None else total(idle / wall_ns, "cores", "cpu.idle_ns"),
        others=_others(used, busy, wall_ns),
        throttled_share=Missing(reason="no CPU quota counter")
        if not periods or throttled is None
        else total(min(1.0, throttled / periods), "frac", "cgroup.cpu.throttled_periods"),
        ranks=ranks,
    )


def _job_cores(timeline: Timeline, tiling: Tiling) -> Signal:
    cpu_ns = process_growth(timeline, tiling, "cpu_ns")
    if cpu_ns is None:
        return _UNSEEN
    return total(cpu_ns / tiling.wall_ns, "cores", "processes.cpu_ns")


def _others(used: Signal, busy_ns: float | None, wall_ns: int) -> Signal:
    if isinstance(used, Missing) or busy_ns is None:
        return _UNSEEN
    return total(max(0.0, busy_ns / wall_ns - used.value), "cores", "cpu.busy_ns minus the job's")
