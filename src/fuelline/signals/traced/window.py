"""The time that a device is accounted for: from mark to mark, so that a step begins with its host.

Without marks it is from the device's first event to its last. With marks, some things are cut off.
First steps that take twice as long as those after them: they warm up. Before the first event: a
wait for the device, which then still did what came before the window.
After the last event: what only the last step ends with, as the profiler or the loop that stops.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.trace import DeviceKind
from fuelline.signals.traced.host import LONG_CALL_NS
from fuelline.timeline.intervals import around, merge, merge_all, total_ns

if TYPE_CHECKING:
    from fuelline.signals.traced.host import HostActivity
    from fuelline.signals.traced.steps import TracedSteps
    from fuelline.timeline.trace import Trace

_STAGING_BYTES_PER_NS = 2.0
"""A core stages a copy from pageable memory at 2 GB/s or more; longer, it waits for the device."""
_FEW = 3
"""Fewer steps do not show how steps usually end."""
_USUAL = 2.0


def find_window(
    trace: Trace, rank: int, steps: TracedSteps, events: pl.DataFrame, host: HostActivity
) -> tuple[int, int]:
    """Of one device of a rank, whose events are in order."""
    first_ns, last_ns = int(events["start_ns"][0]), int(events["end_ns"].max())  # type: ignore[arg-type]
    if steps.marked_ns is None:
        return first_ns, last_ns
    begin_ns, end_ns = steps.marked_ns
    begin_ns = max(begin_ns, _find_steady(steps))
    # A device may lag behind the host; nothing is known of it where the host did nothing more.
    end_ns = min(end_ns, max(host.worked_until_ns, last_ns)) if host.events else end_ns
    own = _launched_until(events, host, end_ns)
    if not own.height or begin_ns >= int(own["end_ns"].max()):  # type: ignore[arg-type]
        return first_ns, last_ns
    done_ns = int(own["end_ns"].max())  # type: ignore[arg-type]
    if begin_ns < first_ns:  # and so nothing of the device was recorded before
        size_bytes = _size_of_first(trace, rank, events)
        begin_ns = _begin(begin_ns, first_ns, size_bytes, host)
    return begin_ns, max(done_ns, min(end_ns, done_ns + _usual_rest(steps, events)))


def _launched_until(events: pl.DataFrame, host: HostActivity, end_ns: int) -> pl.DataFrame:
    """Events of the steps: launched, or where that is not known begun, before the end."""
    columns = events.select("start_ns", "end_ns", "correlation")
    begun = columns.filter(pl.col("start_ns") <= end_ns)
    after = columns.filter(pl.col("start_ns") > end_ns)
    late = host.launches.filter(pl.col("call_ns") > end_ns)["correlation"]
    if late.len():
        is_late = pl.col("correlation").is_in(late.implode()).fill_null(value=False)
        begun = begun.filter(~is_late)
    asked = pl.col("correlation").is_in(after["correlation"].drop_nulls().implode())
    early = host.launches.filter(asked & (pl.col("call_ns") <= end_ns))["correlation"]
    return pl.concat([begun, after.filter(pl.col("correlation").is_in(early.implode()))])


def _find_steady(steps: TracedSteps) -> int:
    """Where the first step begins that takes no much longer than those after it: warm-up ends."""
    took = (steps.spans["end_ns"] - steps.spans["start_ns"]).to_list()
    for place in range(len(took) - _FEW + 1):
        if took[place] <= _USUAL * median(took[place + 1 :]):
            return int(steps.spans["start_ns"][place])
    return int(steps.spans["start_ns"][0])


def _size_of_first(trace: Trace, rank: int, events: pl.DataFrame) -> int:
    """Of the copy that a device begins with; 0 if it is none."""
    if int(events["kind"][0]) != int(DeviceKind.COPY):
        return 0
    copies = [
        part.filter(pl.col("start_ns") == events["start_ns"][0])["size_bytes"]
        for part in trace.parts("device", rank, ("start_ns", "size_bytes"))
    ]
    return int(pl.concat(copies).max() or 0)  # type: ignore[arg-type]


def _begin(begin_ns: int, first_ns: int, size_bytes: int, host: HostActivity) -> int:
    """The first mark, or when the host had waited for what the device did before it."""
    waits = around(
        merge_all(host.sets[cause] for cause in ("synchronise", "memcpy")), begin_ns, first_ns
    )
    waits = merge(waits.select(pl.col("start_ns", "end_ns").clip(begin_ns, first_ns)))
    if total_ns(waits) <= LONG_CALL_NS + size_bytes / _STAGING_BYTES_PER_NS:
        return begin_ns
    return int(waits["end_ns"][-1])


def _usual_rest(steps: TracedSteps, events: pl.DataFrame) -> int:
    """For how long a device may have nothing to do before a step ends, as other steps show."""
    ends = steps.spans["end_ns"].sort().head(-1)
    if ends.len() + 1 < _FEW:
        return max(0, int(steps.spans["end_ns"].max()))  # type: ignore[arg-type]
    busy = merge(events)
    place = busy["start_ns"].search_sorted(ends, side="right").cast(pl.Int64) - 1
    rests = (ends - busy["end_ns"].gather(place.clip(0))).clip(0)
    return round(_USUAL * float(rests.max() or 0.0)) + LONG_CALL_NS
