"""The last seconds of a run that has ended, as one look of somebody who watched it would give them.

For runs that were compacted: spools and journal are gone, the tables have everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.recording.folder import load_recording
from fuelline.schema.diagnosis.live import LiveEvent, RunGrowth, SourceWorker, SpoolGrowth
from fuelline.schema.run import samples
from fuelline.schema.wire import Flag, Kind, Phase

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.run.samples import Row
    from fuelline.timeline import Timeline

LAST_NS = 15 * 10**9
_EVENT = {"owner": "a", "samples": "b", "pause_kind": "c", "position": "e"}
"""Fields of a `LiveEvent` that are called otherwise in the table."""
_TRAINING = (Kind.WAIT, Kind.BACKWARD, Kind.STEP)


def read_last(run_dir: Path) -> RunGrowth:
    """The end of a run, with everything before it counted."""
    timeline = load_recording(run_dir)
    events = timeline.table("events").with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    training = events.filter(pl.col("kind").is_in(_TRAINING))
    last_ns = training["end_ns"].max() if training.height else timeline.run.started_ns
    assert isinstance(last_ns, int)
    ranks = {process.pid: process.rank for process in timeline.processes}
    return RunGrowth(
        run=timeline.run,
        state="ended",
        now_ns=last_ns,
        spools=[
            _end_of_process(process, last_ns, ranks)
            for process in events.partition_by("pid", maintain_order=True)
        ],
        rows=_last_rows(timeline, last_ns),
        blindspots=list(dict.fromkeys(timeline.blindspots)),
    )


def _end_of_process(
    events: pl.DataFrame, last_ns: int, ranks: dict[int, int | None]
) -> SpoolGrowth:
    pid = int(events["pid"][0])
    is_recent = pl.col("end_ns") > last_ns - LAST_NS
    past = events.filter(~is_recent)
    steps = past.filter(pl.col("kind") == Kind.STEP)["a"].value_counts()
    failed = pl.col("flags").cast(pl.Int64) & int(Flag.END | Flag.ERROR) != 0
    workers = events.filter(pl.col("kind") == Kind.WORKER)
    return SpoolGrowth(
        pid=pid,
        rank=ranks.get(pid),
        phase=int(Phase.OUTSIDE),
        trainer_tid=_trainer_tid(events),
        stopped_errno=0,
        is_alive=False,
        is_counted=True,
        events=[
            LiveEvent._make(row)
            for row in events.filter(is_recent & (pl.col("kind") != Kind.MARK))
            .sort("end_ns")
            .select(_EVENT.get(name, name) for name in LiveEvent._fields)
            .iter_rows()
        ],
        past_steps=dict(steps.iter_rows()),
        past_batches=past.filter((pl.col("kind") == Kind.WAIT) & ~failed).height,
        workers=[
            SourceWorker(source_id=source, worker_id=worker, pid=pid)
            for source, worker, pid in workers.select("a", "b", "c").iter_rows()
        ],
    )


def _trainer_tid(events: pl.DataFrame) -> int:
    """The thread that learns, else the one that takes batches; the header with it is gone."""
    for kinds in ((Kind.BACKWARD, Kind.STEP), (Kind.WAIT,)):
        tids = events.filter(pl.col("kind").is_in(kinds))["tid"]
        if tids.len():
            return int(tids.mode().min())  # type: ignore[arg-type]
    return 0


def _last_rows(timeline: Timeline, last_ns: int) -> list[Row]:
    since_ns = last_ns - LAST_NS
    states = timeline.table("states").filter(pl.col("window_ns").is_between(since_ns, last_ns))
    clocks = timeline.table("clocks").filter(pl.col("at_ns").is_between(since_ns, last_ns))
    host = timeline.table("host").filter(pl.col("at_ns") <= last_ns).sort("at_ns")
    # Only changes were written down: what a counter was when the last seconds began is older.
    before = host.filter(pl.col("at_ns") < since_ns).group_by("name", maintain_order=True).last()
    moments: dict[int, dict[str, float]] = {}
    known = (before.select("at_ns", "name", "value"), host.filter(pl.col("at_ns") >= since_ns))
    for at_ns, name, value in pl.concat(known).sort("at_ns").iter_rows():
        moments.setdefault(at_ns, {})[name] = value
    devices = timeline.table("devices").filter(pl.col("at_ns") <= last_ns).sort("at_ns")
    latest = devices.group_by("device", "name", maintain_order=True).last()
    return [
        *timeline.limits,
        *timeline.devices,
        *(
            samples.DeviceSample(at_ns, device, {name: value})
            for device, name, at_ns, value in latest.iter_rows()
        ),
        *(samples.Place(*row) for row in timeline.table("places").iter_rows()),
        *(samples.ThreadState(*row) for row in states.iter_rows()),
        *(samples.ThreadClock(*row) for row in clocks.iter_rows()),
        *(samples.HostSample(at_ns, values) for at_ns, values in moments.items()),
    ]
