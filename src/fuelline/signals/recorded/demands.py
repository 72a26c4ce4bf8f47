"""What one batch asks of each resource: fetch, hand-off, trainer, device, pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.schema.diagnosis.demands import DemandFacts
from fuelline.schema.readings import Missing, Reading, Signal, value_of
from fuelline.signals.recorded.budget import count_job_batches, training_batches
from fuelline.signals.recorded.counters import latest, process_growth, queued_growth, thread_growth
from fuelline.signals.recorded.device_time import (
    PAUSES,
    DeviceTime,
    cut_cycles,
    measure_device_time,
    read_device_clock,
)
from fuelline.signals.recorded.fetching.fetches import BUSY_STATES, STORAGE_STATES, Fetches
from fuelline.signals.recorded.fetching.inputs import find_handoffs, measure_busy
from fuelline.signals.statistics import ratio, total
from fuelline.timeline import events

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.diagnosis.facts import HotLine
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_FEW_BATCHES = 5
_HARDLY_BLOCKED = 0.05
"""Of a fetch: blocked time below this needs no cause."""
_BLOCKED_FRACS = ("read_frac", "metadata_frac", "sleep_frac", "process_frac")
_BLOCKED_HOST = 0.2
"""Of the time in compute: a trainer that is blocked for more of it has a device elsewhere."""
_USUAL = 0.98
_FEW_SAMPLES = 20
"""As for every decomposition by samples: a second of them."""


def measure_demands(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    fetches: Fetches,
    *,
    loop_lines: list[HotLine],
    devices: list[DeviceFacts],
    idle_share: Signal,
) -> DemandFacts:
    """All demands of a batch; Missing everywhere if no loader feeds the steps.

    Likewise where a thread of the job's takes the batches, or makes them: then neither the
    trainer's clocks nor its process's say what is whose.

    `idle_share` is the device's own word on how long it had nothing to do.
    """
    taken = training_batches(timeline, trainer).filter(
        pl.col("end_ns").is_between(segments.start_ns, segments.end_ns)
    )
    is_told = not trainer.crew_tids or fetches.crew is not None or fetches.rows.height
    is_unlike = trainer.reader_tid != trainer.tid or not is_told
    if taken.height < _FEW_BATCHES or is_unlike:
        return DemandFacts(batches=_in_run(taken.height, segments))
    cycles = cut_cycles(timeline, trainer, segments)
    batch_ns = segments.wall_ns / taken.height
    grown = thread_growth(timeline, segments, trainer.tid)
    own_ns = _own_ns(grown, taken)
    blocked_frac = _blocked_frac(cycles, own_ns)
    device = read_device_clock(idle_share, batch_ns) or measure_device_time(
        cycles,
        loop_lines,
        devices,
        batch_ns=batch_ns,
        blocked_frac=blocked_frac,
        queued_ns=0.0 if grown is None else grown[1],
    )
    if timeline.run.is_estimated and device.mode == "within":
        device = _doubt_own_device(device, loop_lines, blocked_frac)
    return DemandFacts(
        batches=_in_run(taken.height, segments),
        job_batches=count_job_batches(timeline, trainer, segments),
        batch_seconds=_mean(taken["end_ns"].diff().drop_nulls(), "next to next"),
        **(_fetching(fetches) if fetches.crew is None else _preparing(fetches, batch_ns)),
        **_handing_over(timeline, trainer, segments, fetches, taken),
        **_hosting(cycles, device, own_ns),
        host_cpu_frac=_host_cpu_frac(timeline, segments, fetches, grown),
        device_seconds=device.seconds,
        device_mode=device.mode,
        is_device_counted=device.is_counted,
        sync_frac=total(device.sync_frac, "frac", "waits for the device over batches"),
        **_pausing(timeline, trainer, segments, cycles, taken.height),
        runnable=_runnable(timeline, segments),
        **_remembering(timeline, trainer, segments),
        **_copying(timeline, trainer, segments, taken.height),
    )


def _doubt_own_device(
    device: DeviceTime, loop_lines: list[HotLine], blocked_frac: float
) -> DeviceTime:
    """Attached to from outside: a host that waits for its device now and then does not show when.

    Only one that computes itself, and never waits, is its own device.
    """
    waits = any(line.stage == "sync" for line in loop_lines)
    if not waits and blocked_frac < _BLOCKED_HOST:
        return device
    reason = Missing(reason="attached from outside: when the host waits for its device is not seen")
    return DeviceTime(reason, "unknown", device.sync_frac, device.waited_ns)


def _in_run(count: int, segments: StepSegments) -> int:
    """How many there were in the run, of which the tables may hold excerpts."""
    return round(count / segments.kept_frac)


def _fetching(fetches: Fetches) -> dict[str, Any]:
    rows = fetches.rows
    timed = rows.filter((pl.col("cpu_ns") >= 0) & (pl.col("runq_ns") >= 0))
    if not timed.height:
        reason = Missing(reason="no fetch with its own clocks ended inside the window")
        return {f"fetch_{name}_seconds": reason for name in ("cpu", "queued", "blocked")}
    blocked = (timed["dur_ns"] - timed["cpu_ns"] - timed["runq_ns"]).clip(0, None)
    counted = rows.filter(pl.col("rchar_bytes") >= 0)
    return {
        "fetch_cpu_seconds": _mean(timed["cpu_ns"], "fetch.cpu"),
        "fetch_queued_seconds": _mean(timed["runq_ns"], "fetch.run queue"),
        "fetch_blocked_seconds": _mean(blocked, "fetch, neither"),
        "fetch_spread": _spread(rows["dur_ns"], "fetch.dur"),
        **_blocked_by(fetches.states, float(blocked.sum()) / float(timed["dur_ns"].sum())),
        "read_calls": _per_batch(
            counted["read_calls"] + counted["major_faults"].clip(0, None), "count"
        ),
        "read_bytes": _per_batch(counted["rchar_bytes"], "bytes"),
    }


def _blocked_by(states: pl.DataFrame, blocked_frac: float) -> dict[str, Any]:
    """Of the blocked samples of fetching threads: in reads, and in metadata calls."""
    if blocked_frac < _HARDLY_BLOCKED:
        none = total(0.0, "frac", "fetches hardly block")
        return dict.fromkeys(_BLOCKED_FRACS, none)
    blocked = states.filter(~pl.col("state").is_in(["running", "pipe"]))
    counts = dict(blocked.group_by("state").agg(pl.col("count").sum()).iter_rows())
    seen = sum(counts.values())
    if seen < _FEW_SAMPLES * blocked_frac:
        reason = Missing(reason=f"only {seen} samples of blocked fetching threads")
        return dict.fromkeys(_BLOCKED_FRACS, reason)
    reading = sum(counts.get(state, 0) for state in STORAGE_STATES)
    return {
        "read_frac": total(reading / seen, "frac", "states: read, fault, socket", seen),
        "metadata_frac": total(counts.get("metadata", 0) / seen, "frac", "states: metadata", seen),
        "sleep_frac": total(counts.get("sleep", 0) / seen, "frac", "states: sleep", seen),
        "process_frac": total(
            counts.get("other", 0) / seen, "frac", "states: another process", seen
        ),
    }


def _preparing(fetches: Fetches, batch_ns: float) -> dict[str, Any]:
    """The same of threads that no fetch is known of: how many were in what, over the batches."""
    use = fetches.crew
    assert use is not None
    looks = max(1, fetches.looks)

    def each(threads: float, what: str) -> Signal:
        return total(threads * batch_ns / 1e9, "s", f"threads, {what}", looks)

    busy = use.computing + use.queued + use.blocked
    return {
        "fetch_cpu_seconds": each(use.computing, "cpu"),
        "fetch_queued_seconds": each(use.queued, "run queue"),
        "fetch_blocked_seconds": each(use.blocked, "neither"),
        "fetch_spread": total(0.0, "frac", "samples of a batch are shared out", looks),
        **_blocked_by(fetches.states, use.blocked / busy if busy > 0 else 0.0),
        "read_calls": Missing(reason="reads of the threads were not counted one by one"),
        "read_bytes": Missing(reason="reads of the threads were not counted one by one"),
    }


def _host_cpu_frac(
    timeline: Timeline,
    segments: StepSegments,
    fetches: Fetches,
    grown: tuple[float, float] | None,
) -> Signal:
    """Of the trainer's own time: on a core.

    Beside a crew of threads the framework computes its steps on threads, too: then it is what the
    process used and the crew did not.
    """
    whole = process_growth(timeline, segments, "cpu_ns")
    if fetches.crew is not None and whole is not None:
        steps = max(0.0, whole / segments.wall_ns - fetches.crew.computing)
        return total(min(1.0, steps), "frac", "cpu of the process, less its crew's")
    if grown is None or sum(grown) <= 0:
        return Missing(reason="the trainer's clocks were not read twice")
    return total(grown[0] / sum(grown), "frac", "clocks of the trainer")


def _handing_over(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    fetches: Fetches,
    taken: pl.DataFrame,
) -> dict[str, Any]:
    if trainer.crew_tids:
        none = total(0.0, "s", "batches stay in the process")
        busy = fetches.at_a_time(*BUSY_STATES)
        share = value_of(busy)
        return {
            "handoff_seconds": none,
            "take_seconds": none,
            "busy_frac": busy
            if share is None
            else total(min(1.0, share / fetches.threads), "frac", "threads at work"),
        }
    if not trainer.worker_pids:
        reason = Missing(reason="no workers: nothing is handed over")
        return {"handoff_seconds": reason, "take_seconds": reason, "busy_frac": reason}
    handoffs = find_handoffs(timeline, trainer, segments)["dur_ns"]
    return {
        "handoff_seconds": _mean(handoffs, "handoff.dur"),
        "take_seconds": _mean(taken.filter(pl.col("cpu_ns") >= 0)["cpu_ns"], "next.cpu"),
        "busy_frac": measure_busy(timeline, trainer, segments, fetches),
    }


def _own_ns(grown: tuple[float, float] | None, taken: pl.DataFrame) -> float | None:
    """The trainer on a core or waiting for one, outside next(), over the window."""
    if grown is None:
        return None
    inside = taken.filter(pl.col("cpu_ns") >= 0)
    mean = float(inside["cpu_ns"].mean() or 0.0) if inside.height else 0.0  # type: ignore[arg-type]
    return max(0.0, sum(grown) - mean * taken.height)


def _blocked_frac(cycles: pl.DataFrame, own_ns: float | None) -> float:
    compute = float(cycles["compute_ns"].sum())
    return max(0.0, 1 - own_ns / compute) if own_ns is not None and compute > 0 else 0.0


def _hosting(cycles: pl.DataFrame, device: DeviceTime, own_ns: float | None) -> dict[str, Any]:
    """The trainer's own time a batch.

    Time in launches that wait for a full queue is not its own: its clocks are an upper bound, too.
    """
    if not cycles.height:
        reason = Missing(reason="too few batches")
        return {"host_seconds": reason, "loop_seconds": reason, "host_spread": reason}
    launching = float(cycles["compute_ns"].mean() or 0.0)  # type: ignore[arg-type]
    if device.mode == "beside" and own_ns is not None:
        launching = min(launching, own_ns / cycles.height)
    loop = max(0.0, float(cycles["loop_ns"].sum()) - device.waited_ns - _after_pauses(cycles))
    loop /= cycles.height
    busy = cycles["asked_ns"] - cycles["launch_ns"] - cycles["pause_ns"]
    return {
        "host_seconds": total((launching + loop) / 1e9, "s", "trainer's own time", cycles.height),
        "loop_seconds": total(loop / 1e9, "s", "loop less waits for the device", cycles.height),
        "host_spread": _spread(busy, "trainer's time"),
    }


def _after_pauses(cycles: pl.DataFrame) -> float:
    """The loop's own time beside a pause, beyond the usual: a metric that follows a validation."""
    paused = pl.col("pause_ns") > 0
    usual = cycles.filter(~paused)["loop_ns"].median()
    beyond = cycles.filter(paused)["loop_ns"] - (usual if isinstance(usual, float) else 0.0)
    return float(beyond.clip(0, None).sum())


def _pausing(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, cycles: pl.DataFrame, batches: int
) -> dict[str, Any]:
    pieces = segments.pieces.filter(pl.col("part").is_in(PAUSES))
    spent = {
        part: (seconds, count)
        for part, seconds, count in pieces.group_by("part")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9, pl.col("step").n_unique())
        .iter_rows()
    }
    if spent:
        longest = max(spent, key=lambda part: spent[part][0])
        seconds, count = spent[longest]
        spent[longest] = (seconds + _after_pauses(cycles) / 1e9, count)
    mine = events.source_starts(timeline, pl.col("pid") == trainer.pid)
    of_training = mine.filter(pl.col("source_id").is_in(trainer.train_sources))
    built = of_training.select(pl.max_horizontal("dur_ns", "whole_ns")).to_series()
    again = of_training.filter(pl.col("start_ns").is_between(segments.start_ns, segments.end_ns))
    if "epoch start" in spent and not again.height:
        # The end of the only epoch: nothing began again, and no setting of workers changes that.
        spent["epoch start"] = (spent["epoch start"][0], 0)
    elif timeline.excerpts is not None and "epoch start" in spent:
        # Excerpts have every start of an epoch, though little of the time that it took.
        spent["epoch start"] = (spent["epoch start"][0], built.len())
    return {
        "pause_seconds": {part: seconds / batches for part, (seconds, _) in spent.items()},
        "pause_counts": {part: count for part, (_, count) in spent.items()},
        "start_seconds": total(
            float(built.max()) / trainer.workers / 1e9,  # type: ignore[arg-type]
            "s",
            "iter over workers",
            built.len(),
        )
        if trainer.workers and built.len()
        else Missing(reason="no worker was started inside the recording"),
    }


def _runnable(timeline: Timeline, segments: StepSegments) -> Signal:
    cpu, queued = process_growth(timeline, segments, "cpu_ns"), queued_growth(timeline, segments)
    if cpu is None or queued is None:
        return Missing(reason="the observer left no clocks of the job's threads")
    return total((cpu + queued) / segments.wall_ns, "count", "cpu and run queue of all threads")


def _remembering(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> dict[str, Any]:
    processes = timeline.table("processes").filter(pl.col("pid").is_in(trainer.worker_pids))
    sizes = processes.group_by("pid").agg(pl.col("rss_bytes").last())["rss_bytes"]
    limits = timeline.limits_within(segments.start_ns, segments.end_ns)
    limit = None if limits is None else limits.memory_limit_bytes
    used = latest(timeline, "cgroup.memory.usage_bytes")
    free = latest(timeline, "memory.available_bytes")
    if limit is not None and used is not None:
        free = min(max(0.0, limit - used), free if free is not None else limit)
    return {
        "worker_bytes": total(float(sizes.median()), "bytes", "rss of workers", sizes.len())  # type: ignore[arg-type]
        if sizes.len()
        else Missing(reason="no worker was seen by the observer"),
        "free_bytes": Missing(reason="free memory was not read")
        if free is None
        else total(free, "bytes", "limit less use, or MemAvailable"),
    }


def _copying(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, batches: int
) -> dict[str, Any]:
    within = pl.col("start_ns").is_between(segments.start_ns, segments.end_ns)
    is_whole = events.has_succeeded()
    mine = events.copies(timeline, (pl.col("pid") == trainer.pid) & is_whole & within)
    if not mine.height:
        reason = Missing(reason="no copy to a device was seen")
        return {"copy_bytes": reason, "copy_seconds": reason}
    return {
        "copy_bytes": total(
            float(mine["size_bytes"].sum()) / batches, "bytes", "copy.bytes", mine.height
        ),
        "copy_seconds": total(
            float(mine["dur_ns"].sum()) / batches / 1e9, "s", "copy.dur", mine.height
        ),
    }


def _mean(times_ns: pl.Series, origin: str) -> Signal:
    """Mean in seconds with a batch-means interval."""
    if not times_ns.len():
        return Missing(reason=f"{origin}: none inside the window")
    return ratio(times_ns / 1e9, pl.repeat(1.0, times_ns.len(), eager=True), "s", origin)


def _per_batch(values: pl.Series, unit: str) -> Signal:
    if not values.len():
        return Missing(reason="no fetch with I/O counters")
    return Reading(
        value=float(values.mean() or 0.0),  # type: ignore[arg-type]
        unit=unit,
        count=values.len(),
        origin="fetch I/O",
    )


def _spread(times_ns: pl.Series, origin: str) -> Signal:
    """Standard deviation over mean, the slowest fiftieth left out: hiccups of the machine."""
    usual = times_ns.filter(times_ns <= times_ns.quantile(_USUAL))
    mean = float(usual.mean() or 0.0) if usual.len() >= _FEW_BATCHES else 0.0
    if mean <= 0:
        return Missing(reason=f"{origin}: too few")
    return total(float(usual.std() or 0.0) / mean, "frac", f"{origin}: spread", usual.len())
