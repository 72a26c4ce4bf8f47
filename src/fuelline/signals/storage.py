"""What the storage did for the fetchers, and whether more requests would have brought more bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.facts import PlaceFacts, StorageFacts
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.units import number, rate
from fuelline.signals.counters import growth, latest, process_growth, sampled_seconds
from fuelline.signals.estimate import slope, total
from fuelline.signals.fetching import STORAGE_STATES, Fetches, fetch_table
from fuelline.timeline.intervals import mean_overlap

if TYPE_CHECKING:
    from fuelline.schema.samples import Limits
    from fuelline.timeline import Timeline
    from fuelline.timeline.tiles import Tiling
    from fuelline.timeline.trainer import Trainer

_ENOUGH_FETCHES = 20
_ENOUGH_SPREAD = 0.1
"""Standard deviation of ln(fetches in progress): below it the number never really changed."""
_SURE_ERROR = 0.3
_OPERATION_BYTES = 64 * 1024
"""A large read reaches the device as operations of about this size; used to bound the job's own
operations from above, and so the others' from below."""
_PAGE_BYTES = 4096
_LITTLE_TRAFFIC = 1.0
"""Operations per second on a device below which nobody is keeping it busy."""


def measure_storage(
    timeline: Timeline, trainer: Trainer, tiling: Tiling, fetches: Fetches, place: PlaceFacts | None
) -> StorageFacts:
    """Everything about storage that rules ask for."""
    rows = fetches.rows.filter(pl.col("read_bytes") >= 0)
    seconds = tiling.wall_ns / 1e9
    limit_use, limit_text = _limit_use(timeline, tiling, place)
    others_share, others_name = _others(timeline, tiling, place)
    calls = float(rows["calls"].sum())
    blocked_ns = float((rows["dur_ns"] - rows["cpu_ns"] - rows["runq_ns"].clip(0, None)).sum())
    disk = _disk_rate(timeline, tiling)
    return StorageFacts(
        in_flight=_in_flight(fetches),
        request_seconds=total(
            max(0.0, blocked_ns) / calls / 1e9, "s", "fetch blocked over read calls", int(calls)
        )
        if calls > 0
        else Missing(reason="no read call was counted"),
        read_bytes_per_s=total(
            float(rows["read_bytes"].sum()) / seconds, "bytes/s", "fetch.read_bytes"
        )
        if rows.height
        else Missing(reason="no fetch with I/O counters"),
        disk_bytes_per_s=disk,
        bytes_per_call=total(
            float(rows["read_bytes"].sum()) / calls, "bytes", "fetch.read_bytes over calls"
        )
        if calls > 0
        else Missing(reason="no read call was counted"),
        saturation=_saturation(fetch_table(timeline, trainer)),
        limit_use=limit_use,
        limit_text=limit_text,
        device_busy=_device_busy(timeline, tiling, place),
        others_share=others_share,
        others_name=others_name,
        refault_share=_refault_share(timeline, tiling),
        memory_use=_memory_use(timeline),
    )


def _in_flight(fetches: Fetches) -> Signal:
    if not fetches.waiting_samples:
        return Missing(reason="the waiting trainer was never sampled")
    blocked = fetches.states.filter(pl.col("state").is_in([*STORAGE_STATES, "metadata"]))[
        "count"
    ].sum()
    return total(
        float(blocked) / fetches.waiting_samples,
        "count",
        "states while waiting",
        fetches.waiting_samples,
    )


def _disk_rate(timeline: Timeline, tiling: Tiling) -> Signal:
    read = process_growth(timeline, tiling, "disk_read_bytes")
    seconds = sampled_seconds(timeline, tiling)
    if read is None or seconds <= 0:
        return Missing(reason="the kernel gave no I/O counters of the job's processes")
    return total(read / seconds, "bytes/s", "processes.disk_read_bytes")


def _saturation(rows: pl.DataFrame) -> Signal:
    """Elasticity of blocked time per byte against fetches in progress, over the whole run.

    Epochs begin and end with fewer fetches in progress, and fetches of other lengths leave gaps:
    that is the experiment, and it costs nothing. 0: a request takes as long whoever else asks. 1:
    it takes its turn.
    """
    known = rows.filter((pl.col("read_bytes") > 0) & (pl.col("dur_ns") > 0)).with_columns(
        blocked=(pl.col("dur_ns") - pl.col("cpu_ns") - pl.col("runq_ns").clip(0, None)).clip(
            1, None
        )
    )
    if known.height < _ENOUGH_FETCHES:
        return Missing(reason=f"only {known.height} fetches read anything")
    overlap = mean_overlap(known["start_ns"], known["start_ns"] + known["dur_ns"])
    crowd = overlap.log(math.e)
    if float(crowd.std() or 0.0) < _ENOUGH_SPREAD:  # type: ignore[arg-type]
        return Missing(reason="the number of fetches in progress never changed")
    fitted = slope(crowd, (known["blocked"] / known["read_bytes"]).log(math.e))
    if fitted is None or fitted[1] > _SURE_ERROR:
        return Missing(reason="fetch times scatter too much to see an effect of their number")
    value, error = fitted
    return Reading(
        value=value,
        unit="frac",
        low=value - 2 * error,
        high=value + 2 * error,
        count=known.height,
        origin="fetch elasticity",
    )


def _limit_use(
    timeline: Timeline, tiling: Tiling, place: PlaceFacts | None
) -> tuple[Signal, str | None]:
    """Achieved rate over the tightest read limit that the job's cgroup sets for any device it reads."""
    limits: Limits | None = timeline.limits[-1] if timeline.limits else None
    seconds = sampled_seconds(timeline, tiling)
    if limits is None or not limits.io_limits or seconds <= 0:
        return Missing(reason="no I/O limit is set for the job"), None
    read = process_growth(timeline, tiling, "disk_read_bytes")
    best: tuple[float, str] | None = None
    for device, caps in limits.io_limits.items():
        if place is not None and place.device != device and not place.device.startswith("0:"):
            continue
        operations = growth(timeline, tiling, f"disk.{device}.reads")
        for name, achieved, text in (
            ("read_bps", read, rate(caps.get("read_bps", 0.0))),
            ("read_iops", operations, f"{number(caps.get('read_iops', 0.0))} operations/s"),
        ):
            if caps.get(name) and achieved is not None:
                use = achieved / seconds / caps[name]
                best = max(best or (0.0, ""), (use, f"of {text} that its cgroup sets for {device}"))
    if best is None:
        return Missing(reason="no I/O limit is set for the device"), None
    return total(best[0], "frac", "achieved over cgroup limit"), best[1]


def _device_busy(timeline: Timeline, tiling: Tiling, place: PlaceFacts | None) -> Signal:
    busy_ms = None if place is None else growth(timeline, tiling, f"disk.{place.device}.busy_ms")
    if busy_ms is None:
        return Missing(reason="not a local block device")
    return total(min(1.0, busy_ms * 1e6 / tiling.wall_ns), "frac", "disk.busy_ms")


def _others(
    timeline: Timeline, tiling: Tiling, place: PlaceFacts | None
) -> tuple[Signal, str | None]:
    """How much of the device's work is not the job's: by bytes or by operations, whichever is more."""
    if place is None:
        return Missing(reason="no place was seen where fetches block"), None
    name, busy_there = _neighbour(timeline, tiling, place)
    signals = [
        signal
        for signal in (_device_others(timeline, tiling, place), busy_there)
        if isinstance(signal, Reading)
    ]
    if not signals:
        return Missing(reason="nothing is known about other users of this mount"), None
    return max(signals, key=lambda signal: signal.value), name


def _device_others(timeline: Timeline, tiling: Tiling, place: PlaceFacts) -> Signal:
    operations = growth(timeline, tiling, f"disk.{place.device}.reads")
    moved = growth(timeline, tiling, f"disk.{place.device}.read_bytes")
    own_bytes = process_growth(timeline, tiling, "disk_read_bytes")
    own_calls = process_growth(timeline, tiling, "read_calls")
    own_faults = process_growth(timeline, tiling, "major_faults")
    if (
        operations is None
        or moved is None
        or own_bytes is None
        or own_calls is None
        or own_faults is None
    ):
        return Missing(reason="not a local block device")
    if operations < _LITTLE_TRAFFIC * tiling.wall_ns / 1e9:
        return Missing(reason="the device had nothing to do")
    own_operations = own_calls + own_faults + own_bytes / _OPERATION_BYTES
    share = max(1 - own_bytes / moved if moved else 0.0, 1 - own_operations / operations)
    return total(max(0.0, share), "frac", "disk counters minus the job's")


def _neighbour(timeline: Timeline, tiling: Tiling, place: PlaceFacts) -> tuple[str | None, Signal]:
    """The process outside the job that works most on the same mount, and its part of the work there."""
    return None, Missing(reason="no other process was seen on this mount")


def _refault_share(timeline: Timeline, tiling: Tiling) -> Signal:
    pages = growth(timeline, tiling, "cgroup.memory.refault_file_pages")
    if pages is None:
        pages = growth(timeline, tiling, "memory.refault_file_pages")
    read = process_growth(timeline, tiling, "disk_read_bytes")
    if pages is None or not read:
        return Missing(reason="nothing was read from a device, or refaults are not counted")
    return total(min(1.0, pages * _PAGE_BYTES / read), "frac", "refaults over disk reads")


def _memory_use(timeline: Timeline) -> Signal:
    limit = timeline.limits[-1].memory_limit_bytes if timeline.limits else None
    used = latest(timeline, "cgroup.memory.usage_bytes")
    if not limit or used is None:
        return Missing(reason="no memory limit")
    return total(used / limit, "frac", "cgroup memory usage over limit")
