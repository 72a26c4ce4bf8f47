"""What the storage did for the fetchers; would more requests have brought more bytes?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.facts import PlaceFacts, StorageFacts
from fuelline.schema.readings import Missing, Reading, Signal, at_least
from fuelline.schema.units import number, rate
from fuelline.signals.recorded.counters import growth, latest, process_growth, usual_rate
from fuelline.signals.recorded.fetching.fetches import (
    STORAGE_STATES,
    Fetches,
    fetch_table,
    measure_growth,
)
from fuelline.signals.statistics import total

if TYPE_CHECKING:
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_OPERATION_BYTES = 64 * 1024
"""A large read reaches the device as operations of about this size; used to bound the job's own
operations from above, and so the others' from below."""
_PAGE_BYTES = 4096
_FROM_DEVICE = 0.3
"""Share of the bytes read that must come from a device before re-reading can be the cause."""
_LOOK_NS = 2 * 10**9
"""The observer looks at other processes this often, unless it says how often it did."""
_BUSY = 0.7
"""Use of a device or of a limit from which its users wait for each other: at 70 % of a single
server the mean queue is more than two requests long."""


def measure_storage(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    fetches: Fetches,
    place: PlaceFacts | None,
) -> StorageFacts:
    """Everything about storage that rules ask for."""
    rows = fetches.rows.filter(pl.col("rchar_bytes") >= 0)
    # In the trainer only some fetches carry I/O counters; they stand for all.
    counted = rows.height / max(1, fetches.rows.height)
    seconds = segments.wall_ns / 1e9 * counted
    limit_use, limit_text = _limit_use(timeline, segments, place)
    in_flight = fetches.at_a_time(*STORAGE_STATES, "metadata")
    others_share, others_name = _others(
        timeline, segments, place, limit_use=limit_use, in_flight=in_flight
    )
    reads = _read_calls(rows)
    return StorageFacts(
        in_flight=in_flight,
        **_per_read(rows, reads, seconds),
        disk_bytes_per_s=_disk_rate(timeline, segments),
        saturation=measure_growth(
            fetch_table(timeline, trainer),
            "rchar_bytes" if isinstance(reads, Reading) else "samples",
        ),
        limit_use=limit_use,
        limit_text=limit_text,
        device_busy=_device_busy(timeline, segments, place),
        device_queue=_device_queue(timeline, segments, place),
        others_share=others_share,
        others_name=others_name,
        refault_share=_refault_share(timeline, segments),
        memory_use=_memory_use(timeline, segments),
        write_bytes_per_s=_write_rate(timeline, segments, "wchar_bytes"),
        write_limit_use=_write_limit_use(timeline, segments),
    )


def _write_rate(timeline: Timeline, segments: StepSegments, column: str) -> Signal:
    written = process_growth(timeline, segments, column)
    if written is None:
        return Missing(reason="the kernel gave no I/O counters of the job's processes")
    return total(written / (segments.wall_ns / 1e9), "bytes/s", f"processes.{column}")


def _write_limit_use(timeline: Timeline, segments: StepSegments) -> Signal:
    limits = timeline.limits_within(segments.start_ns, segments.end_ns)
    caps = [
        caps["write_bps"]
        for caps in (limits.io_limits if limits else {}).values()
        if caps.get("write_bps")
    ]
    written = _write_rate(timeline, segments, "disk_write_bytes")
    if not caps or isinstance(written, Missing):
        return Missing(reason="no limit of writing is set for the job")
    return total(written.value / min(caps), "frac", "achieved over cgroup limit")


def _read_calls(rows: pl.DataFrame) -> Signal:
    """Reads and major faults of the fetches, if those are what the fetches are blocked in.

    The kernel does not count what is received from sockets: then the few calls that it did count
    would have to last longer than the fetches that made them.
    """
    calls = float((rows["read_calls"] + rows["major_faults"].clip(0, None)).sum())
    if calls <= 0:
        return Missing(reason="no read call or major fault was counted")
    if _blocked_ns(rows) / calls > float(rows["dur_ns"].sum()) / rows.height:
        return Missing(
            reason="fetches are blocked in calls that the kernel does not count as reads"
        )
    return total(calls, "count", "fetch.calls and major faults", int(calls))


def _blocked_ns(rows: pl.DataFrame) -> float:
    blocked = (rows["dur_ns"] - rows["cpu_ns"] - rows["runq_ns"].clip(0, None)).sum()
    return max(0.0, float(blocked))


def _per_read(rows: pl.DataFrame, reads: Signal, seconds: float) -> dict[str, Signal]:
    names = ("request_seconds", "read_bytes_per_s", "bytes_per_call")
    if isinstance(reads, Missing):
        return dict.fromkeys(names, reads)
    moved, count = float(rows["rchar_bytes"].sum()), int(reads.value)
    each_s = _blocked_ns(rows) / reads.value / 1e9
    return {
        "request_seconds": total(each_s, "s", "fetch blocked over read calls and faults", count),
        "read_bytes_per_s": total(moved / seconds, "bytes/s", "fetch.read_bytes"),
        "bytes_per_call": total(moved / count, "bytes", "fetch.read_bytes over calls", count),
    }


def _disk_rate(timeline: Timeline, segments: StepSegments) -> Signal:
    read = process_growth(timeline, segments, "disk_read_bytes")
    if read is None:
        return Missing(reason="the kernel gave no I/O counters of the job's processes")
    return total(read / (segments.wall_ns / 1e9), "bytes/s", "processes.disk_read_bytes")


def _limit_use(
    timeline: Timeline, segments: StepSegments, place: PlaceFacts | None
) -> tuple[Signal, str | None]:
    """Achieved rate over the tightest read limit that the job's cgroup sets for a device.

    The cgroup's own counters are used where there are any: the limit is shared with its other
    members.
    """
    limits = timeline.limits_within(segments.start_ns, segments.end_ns)
    uses = [
        (use, f"{text} that its cgroup sets for {device}")
        for device, caps in (limits.io_limits if limits else {}).items()
        if place is None or place.device in (device, "") or place.device.startswith("0:")
        for use, text in _cap_uses(timeline, segments, device, caps)
    ]
    if not uses:
        return Missing(reason="no I/O limit is set for the job"), None
    use, text = max(uses)
    return total(use, "frac", "achieved over cgroup limit"), text


def _cap_uses(
    timeline: Timeline, segments: StepSegments, device: str, caps: dict[str, float]
) -> list[tuple[float, str]]:
    own = process_growth(timeline, segments, "disk_read_bytes")
    moved = _largest(
        _rate(timeline, segments, f"cgroup.io.{device}.read_bytes"),
        None if own is None else own / (segments.wall_ns / 1e9),
    )
    operations = _rate(timeline, segments, f"cgroup.io.{device}.read_operations")
    if operations is None:
        operations = _rate(timeline, segments, f"disk.{device}.reads")
    uses = []
    if caps.get("read_bps") and moved is not None:
        uses.append((moved / caps["read_bps"], rate(caps["read_bps"])))
    if caps.get("read_iops") and operations is not None:
        use = operations / caps["read_iops"]
        uses.append((use, f"{number(caps['read_iops'])} reads/s"))
    return uses


def _rate(timeline: Timeline, segments: StepSegments, name: str) -> float | None:
    """Per second, on average or usually: who stops now and then is at the limit anyway."""
    grown = growth(timeline, segments, name)
    mean = None if grown is None else grown / (segments.wall_ns / 1e9)
    return _largest(mean, usual_rate(timeline, segments, name))


def _largest(*values: float | None) -> float | None:
    """The largest of several lower bounds for the same thing."""
    return max((value for value in values if value is not None), default=None)


def _device_busy(timeline: Timeline, segments: StepSegments, place: PlaceFacts | None) -> Signal:
    busy_ms = None if place is None else growth(timeline, segments, f"disk.{place.device}.busy_ms")
    if busy_ms is None:
        return Missing(reason="not a local block device")
    return total(min(1.0, busy_ms * 1e6 / segments.wall_ns), "frac", "disk.busy_ms")


def _device_queue(timeline: Timeline, segments: StepSegments, place: PlaceFacts | None) -> Signal:
    name = None if place is None else f"disk.{place.device}.weighted_ms"
    weighted_ms = None if name is None else growth(timeline, segments, name)
    if weighted_ms is None:
        return Missing(reason="not a local block device")
    return total(weighted_ms * 1e6 / segments.wall_ns, "count", "disk.weighted_ms")


def _others(
    timeline: Timeline,
    segments: StepSegments,
    place: PlaceFacts | None,
    *,
    limit_use: Signal,
    in_flight: Signal,
) -> tuple[Signal, str | None]:
    """How much of the work of what limits the job is done for others, and the busiest of them.

    Where the job's cgroup is at its I/O limit, only members of that cgroup compete; otherwise the
    device must be busy before its other users matter. Neighbours in the same directory compete for
    its locks.
    """
    if place is None:
        return Missing(reason="no place was seen where fetches block"), None
    if at_least(limit_use, _BUSY):
        shared = _share_of_others(
            timeline, segments, place, f"cgroup.io.{place.device}", "read_operations"
        )
    elif at_least(_device_busy(timeline, segments, place), _BUSY):
        shared = _share_of_others(timeline, segments, place, f"disk.{place.device}", "reads")
    else:
        shared = Missing(reason="neither the device nor an I/O limit is busy")
    crowd, name = _crowd(timeline, segments, place, in_flight)
    known = [signal for signal in (shared, crowd) if isinstance(signal, Reading)]
    if not known:
        return Missing(reason="no other user of this storage was seen"), None
    return max(known, key=lambda signal: signal.value), name


def _share_of_others(
    timeline: Timeline,
    segments: StepSegments,
    place: PlaceFacts,
    prefix: str,
    operation_counter: str,
) -> Signal:
    """By bytes or operations, whichever is more; the job's own operations are an upper bound."""
    operations = growth(timeline, segments, f"{prefix}.{operation_counter}")
    moved = growth(timeline, segments, f"{prefix}.read_bytes")
    own = [
        process_growth(timeline, segments, name)
        for name in ("disk_read_bytes", "read_calls", "major_faults")
    ]
    if not operations or not moved or None in own:
        return Missing(reason=f"{place.mount} has no counters, or the kernel refused the job's")
    own_bytes, own_calls, own_faults = (value or 0.0 for value in own)
    own_operations = own_calls + own_faults + own_bytes / _OPERATION_BYTES
    share = max(1 - own_bytes / moved, 1 - own_operations / operations)
    return total(max(0.0, share), "frac", f"{prefix} minus the job's")


def _crowd(
    timeline: Timeline, segments: StepSegments, place: PlaceFacts, in_flight: Signal
) -> tuple[Signal, str | None]:
    """Threads outside the job that are blocked on the same mount, against the job's own."""
    others = timeline.table("others").filter(
        pl.col("at_ns").is_between(segments.start_ns, segments.end_ns)
    )
    mounts = timeline.table("places").select("id", "mount")
    there = others.join(mounts, left_on="place", right_on="id", how="inner").filter(
        (pl.col("mount") == place.mount) & (pl.col("blocked") > 0)
    )
    if not there.height or isinstance(in_flight, Missing):
        return Missing(reason="no other process was seen blocked on this mount"), None
    looks = growth(timeline, segments, "others.looks") or segments.wall_ns / _LOOK_NS
    theirs = float(there["blocked"].sum()) * timeline.kept_frac / looks
    by_name = there.group_by("name").agg(pl.col("blocked").sum()).sort("blocked", descending=True)
    share = theirs / (theirs + in_flight.value)
    return total(share, "frac", "threads blocked on the mount", there.height), by_name["name"][0]


_EVICTIONS = (
    "cgroup.memory.limit_hits",
    "memory.direct_scan_pages",
    "memory.background_scan_pages",
)
"""What grows when the kernel drops pages: at the limit of a group, or when the host runs short."""


def _refault_share(timeline: Timeline, segments: StepSegments) -> Signal:
    """Over the second half of the window: nothing can be refaulted before it was read once.

    The counters are those of a group or of the whole host, and so of others too. But what the
    kernel never had to drop, for the group's limit or for lack of memory, cannot have been ours.
    """
    settled = replace(segments, start_ns=(segments.start_ns + segments.end_ns) // 2)
    evictions = [growth(timeline, segments, name) for name in _EVICTIONS]
    if all(grown == 0 for grown in evictions):
        return total(0.0, "frac", "nothing was evicted")
    pages = growth(timeline, settled, "cgroup.memory.refault_file_pages")
    if pages is None:
        pages = growth(timeline, settled, "memory.refault_file_pages")
    read = process_growth(timeline, settled, "disk_read_bytes")
    if pages is None or not read:
        return Missing(reason="nothing was read from a device, or refaults are not counted")
    if read < _FROM_DEVICE * (process_growth(timeline, settled, "rchar_bytes") or 0.0):
        return Missing(reason="most reads did not reach a local device")
    return total(min(1.0, pages * _PAGE_BYTES / read), "frac", "refaults over disk reads")


def _memory_use(timeline: Timeline, segments: StepSegments) -> Signal:
    limits = timeline.limits_within(segments.start_ns, segments.end_ns)
    limit = None if limits is None else limits.memory_limit_bytes
    used = latest(timeline, "cgroup.memory.usage_bytes")
    if not limit or used is None:
        return Missing(reason="no memory limit")
    return total(used / limit, "frac", "cgroup memory usage over limit")
