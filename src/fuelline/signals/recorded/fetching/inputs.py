"""What the threads that prepare batches did while the trainer waited for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.diagnosis.facts import InputFacts, PlaceFacts
from fuelline.schema.readings import Missing, Reading, Signal, at_least
from fuelline.signals.recorded.budget import find_failed_hook, measure_wait, training_batches
from fuelline.signals.recorded.counters import list_rates
from fuelline.signals.recorded.fetching.fetches import (
    BLOCKED_STATES,
    STORAGE_STATES,
    fetch_table,
    fit_elasticity,
    fit_growth,
    measure_growth,
)
from fuelline.signals.statistics import proportion, ratio, total
from fuelline.timeline import events
from fuelline.timeline.intervals import covered_ns, merge, total_ns

if TYPE_CHECKING:
    from fuelline.signals.recorded.fetching.fetches import Fetches
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_FEW_SAMPLES = 20
"""Fewer samples of waiting than this do not carry a decomposition: 1 s at 20 per second."""
_FEW_HELPERS = 5
"""Helpers of threads that were looked at often enough are mostly at a lock, too, as of a Python
that runs one of them at a time: the few that are not say what the others wait for."""
_KEPT_UP = 0.8
"""Workers with nothing to do for four fifths of the trainer's wait are not what it waits for."""
_SETS_NO_PACE = 0.5
_PICKLING = 0.25
"""Of the wait: with less of it in pickling, that is not what the trainer waits for either."""
_ALWAYS_BUSY = 0.8
"""Of the workers' time: with more, their number in progress changes when epochs begin and end, and
hardly because some fetches are slow."""
_SURE_ERROR = 0.25
"""Of the elasticity of CPU time: 0 and 1 are then four errors apart. Stricter than for storage,
since samples differ in their work more than in the time of a read."""
_ENOUGH_SECONDS = 8
_BESIDE_ERROR = 0.125
"""Of the same, second by second: 0 and one half are then four errors apart. Who comes and goes
beside the job is no experiment of its own, and may do so in step with something else."""
_UNSEEN_ALONE = Missing(reason="attached from outside: no single fetch was seen")
_BLOCKED_FRAC = 0.2
"""Fetches that are blocked for less compute, whatever they may be blocked in."""


def measure_input(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    fetches: Fetches,
    *,
    hidden_frac: float,
    queue_wait: Signal | None = None,
) -> InputFacts:
    """Waiting for input and its decomposition.

    `queue_wait` is what stands for it where no hook has timed it, or not all: another thread takes
    the batches from the loader, or the loop's own code makes them.
    """
    unseen = _unseen_wait(timeline, trainer, is_sampled=queue_wait is not None)
    rows = fetches.rows
    wall = rows["dur_ns"]
    batches = _batches_within(timeline, trainer, segments)
    shares = _state_shares(fetches, batches)
    sizes = batches.filter(pl.col("size_bytes") >= 0)["size_bytes"]
    return InputFacts(
        exposed_share=unseen
        or _scale(queue_wait, 1 - hidden_frac)
        or measure_wait(segments, hidden_frac),
        wait_share=unseen or queue_wait or measure_wait(segments),
        **shares,
        blocked_growth=_UNSEEN_ALONE
        if timeline.run.is_estimated
        else measure_growth(fetch_table(timeline, trainer), "samples"),
        collate_share=ratio(rows["collate_ns"], wall, "frac", "fetch.collate over fetches"),
        pickle_share=_pickle_share(timeline, trainer, segments, batches),
        unpickle_share=_unpickle_share(trainer, batches),
        system_share=_known_ratio(rows, "system_ns", "cpu_ns", "fetch.system over cpu"),
        fetchers=fetches.in_progress(),
        fetch_seconds=_fetch_seconds(fetches),
        batch_bytes=total(_mean(sizes), "bytes", "next.bytes", sizes.len())
        if sizes.len()
        else Missing(reason="no batch was measured inside the window"),
        pickled_bytes=_pickled_bytes(timeline, trainer, segments),
        place=_top_place(
            timeline,
            fetches.states.filter(pl.col("state").is_in([*STORAGE_STATES, "metadata"])),
        ),
        lock_place=_top_place(timeline, _at_file_locks(fetches.states)),
        cpu_growth=_UNSEEN_ALONE
        if timeline.run.is_estimated
        else _cpu_growth(timeline, trainer, segments, fetches),
        beside_growth=_UNSEEN_ALONE
        if timeline.run.is_estimated
        else _beside_growth(timeline, segments, fetches),
        is_estimated=timeline.run.is_estimated,
    )


def _fetch_seconds(fetches: Fetches) -> Signal:
    wall = fetches.rows["dur_ns"]
    if wall.len():
        return total(_mean(wall) / 1e9, "s", "fetch.dur", wall.len())
    if fetches.batch_s is not None:
        return total(fetches.batch_s, "s", "the pipeline's own stages over batches")
    return Missing(reason="no fetch ended inside the window")


def _cpu_growth(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, fetches: Fetches
) -> Signal:
    """Elasticity of CPU time per sample against the fetches that can run at once, over all epochs.

    Workers start one by one and the last ones of an epoch are alone: that is the experiment. CPU
    time does not count waiting for a core, so what grows is the work's own time: it waits for
    memory, or shares a cache or a core's units. More fetches than cores do not run at once.

    Only where workers are always busy: those that idle in between overlap more while they are slow,
    whatever the reason.
    """
    busy = measure_busy(timeline, trainer, segments, fetches)
    if not at_least(busy, _ALWAYS_BUSY):
        return Missing(reason="the workers were not busy all the time")
    limits = timeline.limits_within(segments.start_ns, segments.end_ns)
    rows = fetch_table(timeline, trainer)
    known = rows.filter((pl.col("cpu_ns") > 0) & (pl.col("samples") > 0) & (pl.col("dur_ns") > 0))
    if limits is None:
        return Missing(reason="the cores were not counted")
    cost = known["cpu_ns"] / known["samples"]
    return fit_growth(known, cost, _SURE_ERROR, most=float(limits.cpus_allowed))


def _beside_growth(timeline: Timeline, segments: StepSegments, fetches: Fetches) -> Signal:
    """Elasticity of CPU time per sample against the busy cores of the host, second by second.

    Other processes come and go, and the job's own number of workers does not change: that is the
    other experiment. Seconds are compared, not fetches: those of one second have one neighbour.
    """
    busy = list_rates(timeline, segments, "cpu.busy_ns").filter(pl.col("per_s") > 0)
    known = fetches.rows.filter((pl.col("cpu_ns") > 0) & (pl.col("samples") > 0))
    seconds = (
        known.with_columns(middle_ns=pl.col("start_ns") + pl.col("dur_ns") // 2)
        .sort("middle_ns")
        .join_asof(busy, left_on="middle_ns", right_on="until_ns", strategy="forward")
        .filter(pl.col("middle_ns") >= pl.col("since_ns"))
        .group_by("until_ns", "per_s")
        .agg(pl.col("cpu_ns", "samples").sum())
    )
    if seconds.height < _ENOUGH_SECONDS:
        return Missing(reason=f"only {seconds.height} seconds show it")
    cost = seconds["cpu_ns"] / seconds["samples"]
    return fit_elasticity(seconds["per_s"] / 1e9, cost, _BESIDE_ERROR)


def keeps_up(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, fetches: Fetches
) -> bool:
    """Whether batches were ready while the trainer took them: workers had nothing to do.

    By what they were seen doing meanwhile; where the trainer waited too little for that, by the
    clocks of their fetches: who is busy for half of the time or less does not set the pace. Those
    whose queue is still pickling have nothing to do either, and are not done.
    """
    if not trainer.worker_pids:
        return False
    looks = int(fetches.states["count"].sum())
    idle = int(fetches.states.filter(pl.col("state") == "pipe")["count"].sum())
    if looks >= _FEW_SAMPLES:
        is_idle = idle >= _KEPT_UP * looks
    else:
        busy = measure_busy(timeline, trainer, segments, fetches)
        is_idle = isinstance(busy, Reading) and busy.value <= _SETS_NO_PACE
    if not is_idle:
        return False
    batches = _batches_within(timeline, trainer, segments)
    pickled = _pickle_share(timeline, trainer, segments, batches)
    return isinstance(pickled, Reading) and pickled.value < _PICKLING


def measure_busy(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, fetches: Fetches
) -> Signal:
    """Of the workers' time: in a fetch or serialising, by their own clocks."""
    if not fetches.rows.height:
        return Missing(reason="no fetch ended inside the window")
    pickled = find_handoffs(timeline, trainer, segments)["dur_ns"]
    busy_ns = float(fetches.rows["dur_ns"].sum()) + float(pickled.sum())
    share = min(1.0, busy_ns / (fetches.threads * segments.wall_ns))
    return total(share, "frac", "fetches over workers", fetches.rows.height)


def find_handoffs(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> pl.DataFrame:
    """Batches that workers serialised inside the window."""
    within = pl.col("start_ns").is_between(segments.start_ns, segments.end_ns)
    return events.handoffs(timeline, pl.col("pid").is_in(trainer.worker_pids) & within)


def _batches_within(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> pl.DataFrame:
    return training_batches(timeline, trainer).filter(
        pl.col("end_ns").is_between(segments.start_ns, segments.end_ns)
    )


def _scale(share: Signal | None, factor: float) -> Signal | None:
    if not isinstance(share, Reading) or factor == 1:
        return share
    low, high = (None if end is None else end * factor for end in (share.low, share.high))
    return msgspec.structs.replace(share, value=share.value * factor, low=low, high=high)


def _unseen_wait(timeline: Timeline, trainer: Trainer, *, is_sampled: bool) -> Missing | None:
    """Why the training thread's waiting cannot be seen, if it cannot."""
    failed = find_failed_hook(timeline)
    if failed is not None:
        return Missing(reason=f"{failed.what} failed: {failed.why}")
    if not trainer.train_sources and not is_sampled:
        return Missing(reason="no source of batches was seen to feed the steps")
    return None


def _state_shares(fetches: Fetches, batches: pl.DataFrame) -> dict[str, Signal]:
    """Decompose the fetching threads' time while the trainer waited.

    `running` covers having a core and waiting for one; the fetches' own CPU and run-queue clocks,
    which are exact, separate the two.
    """
    names = [
        "cpu",
        "core_wait",
        "read",
        "metadata",
        "sleep",
        "blocked",
        "lock",
        "file_lock",
        "write",
        "idle",
    ]
    counts = dict(fetches.states.group_by("state").agg(pl.col("count").sum()).iter_rows())
    seen = sum(counts.values())
    busy = seen - counts.get("pipe", 0)
    if fetches.looks < _FEW_SAMPLES or seen < _FEW_HELPERS:
        reason = f"only {seen} samples of fetching threads while the trainer waited"
        unseen: dict[str, Signal] = {f"{name}_share": Missing(reason=reason) for name in names}
        return unseen | _clock_shares(fetches, batches)
    cpu_part = _cpu_part(fetches.rows) if fetches.cpu_part is None else fetches.cpu_part
    reading = sum(counts.get(state, 0) for state in STORAGE_STATES)
    running = counts.get("running", 0)
    origin = "states while waiting"
    return {
        "cpu_share": proportion(running * cpu_part, busy, f"{origin}: cpu"),
        "core_wait_share": proportion(running * (1 - cpu_part), busy, f"{origin}: run queue"),
        "read_share": proportion(reading, busy, f"{origin}: read, fault, socket"),
        "metadata_share": proportion(counts.get("metadata", 0), busy, f"{origin}: metadata"),
        "sleep_share": proportion(counts.get("sleep", 0), busy, f"{origin}: sleep"),
        "blocked_share": proportion(
            sum(counts.get(state, 0) for state in BLOCKED_STATES),
            busy,
            f"{origin}: sleep, service, another process",
        ),
        "lock_share": proportion(counts.get("lock", 0), busy, f"{origin}: lock"),
        "write_share": proportion(counts.get("write", 0), busy, f"{origin}: write"),
        "file_lock_share": proportion(
            int(_at_file_locks(fetches.states)["count"].sum()), busy, f"{origin}: lock of a file"
        ),
        "idle_share": proportion(counts.get("pipe", 0), seen, f"{origin}: pipe"),
    }


def _at_file_locks(states: pl.DataFrame) -> pl.DataFrame:
    """Locks of memory have no place; those of files have."""
    return states.filter((pl.col("state") == "lock") & (pl.col("place") > 0))


def _clock_shares(fetches: Fetches, batches: pl.DataFrame) -> dict[str, Signal]:
    """The same by the fetches' own clocks, for workers that come and go between two samples.

    These know what a fetch computes, not what it is blocked in: if that is more than a little,
    nothing is said. What little it is counts as reading, which it is at most.
    """
    known = fetches.rows.filter((pl.col("cpu_ns") >= 0) & (pl.col("runq_ns") >= 0))
    wall_ns, cpu_ns, queued_ns = (
        float(known[name].sum()) for name in ("dur_ns", "cpu_ns", "runq_ns")
    )
    blocked_ns = max(0.0, wall_ns - cpu_ns - queued_ns)
    waits = merge(batches.select("start_ns", "end_ns"))
    room_ns = fetches.threads * total_ns(waits)
    if known.height < _FEW_SAMPLES or blocked_ns > _BLOCKED_FRAC * wall_ns or not room_ns:
        return {}
    spans = known.select("start_ns", (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"))
    busy_ns = min(float(covered_ns(spans, waits).sum()), room_ns)

    def share(part_ns: float, whole_ns: float, what: str) -> Signal:
        return proportion(known.height * part_ns / whole_ns, known.height, f"fetch clocks: {what}")

    return {
        "cpu_share": share(wall_ns - queued_ns - blocked_ns, wall_ns, "cpu"),
        "core_wait_share": share(queued_ns, wall_ns, "run queue"),
        "read_share": share(blocked_ns, wall_ns, "blocked"),
        "metadata_share": share(0.0, wall_ns, "within blocked"),
        "idle_share": share(room_ns - busy_ns, room_ns, "no fetch while waiting"),
    }


def _cpu_part(rows: pl.DataFrame) -> float:
    """Of the time that fetches were ready to run: they had a core."""
    known = rows.filter((pl.col("cpu_ns") >= 0) & (pl.col("runq_ns") >= 0))
    cpu, queued = float(known["cpu_ns"].sum()), float(known["runq_ns"].sum())
    return cpu / (cpu + queued) if cpu + queued > 0 else 1.0


def _known_ratio(rows: pl.DataFrame, part: str, whole: str, origin: str) -> Signal:
    known = rows.filter((pl.col(part) >= 0) & (pl.col(whole) >= 0))
    return ratio(known[part], known[whole], "frac", origin)


def _pickle_share(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, batches: pl.DataFrame
) -> Signal:
    if not trainer.worker_pids:
        return Missing(reason="no workers, nothing is pickled")
    pickled = find_handoffs(timeline, trainer, segments)
    waited = float(batches["dur_ns"].sum())
    if waited <= 0:
        return Missing(reason="the trainer never waited")
    return total(
        float(pickled["dur_ns"].sum()) / waited, "frac", "handoff over wait", pickled.height
    )


def _pickled_bytes(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> Signal:
    sizes = find_handoffs(timeline, trainer, segments)["pickled_bytes"]
    if not sizes.len():
        return Missing(reason="no batch was pickled inside the window")
    return total(_mean(sizes), "bytes", "handoff.pickled", sizes.len())


def _unpickle_share(trainer: Trainer, batches: pl.DataFrame) -> Signal:
    if not trainer.worker_pids:
        return Missing(reason="no workers, nothing is unpickled")
    known = batches.filter(pl.col("cpu_ns") >= 0)["cpu_ns"]
    waited = float(batches["dur_ns"].sum())
    if not known.len() or not waited:
        return Missing(reason="the trainer's CPU time in next() was not read")
    # Read at some batches only, whose waits may be short or long: their mean stands for all.
    spent = _mean(known) * batches.height
    return total(min(1.0, spent / waited), "frac", "next.cpu over next", known.len())


def _top_place(timeline: Timeline, blocked: pl.DataFrame) -> PlaceFacts | None:
    seen = int(blocked["count"].sum())
    known = blocked.filter(pl.col("place") > 0).join(
        timeline.table("places"), left_on="place", right_on="id", how="inner"
    )
    if not known.height:
        return None
    mount = (
        known.group_by("mount")
        .agg(pl.col("count").sum())
        .sort("count", "mount", descending=[True, False])["mount"][0]
    )
    top = (
        known.filter(pl.col("mount") == mount)
        .group_by("path", "mount", "fstype", "device", "syscall")
        .agg(pl.col("count").sum())
        .sort("count", "path", descending=[True, False])
    )
    row = top.row(0, named=True)
    share = float(top["count"].sum()) / seen
    return PlaceFacts(
        path=row["path"],
        mount=row["mount"],
        fstype=row["fstype"],
        device=row["device"],
        syscall=row["syscall"],
        share=share,
    )


def _mean(series: pl.Series) -> float:
    return float(series.mean() or 0.0)  # type: ignore[arg-type]
