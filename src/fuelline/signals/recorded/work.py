"""What a step costs the job itself, apart from what else the machine does at that moment.

Two things make the same step take longer on a shared machine. Threads that are ready to run wait
for a core: the kernel counts that. And a core is slower while neighbours use its cache, its memory
or its other half: no counter shows that, but it comes and goes, so that the tenth of the steps with
the least CPU time hardly has any of it (`signals/undisturbed.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.comparison import RunWork
from fuelline.signals.recorded.counters import growth, process_growth, queued_growth
from fuelline.signals.recorded.fetching.fetches import fetch_table
from fuelline.timeline import events

if TYPE_CHECKING:
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer


def measure_work(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> RunWork:
    """CPU time of the trainer and of its workers for a step, and the wait for others' cores."""
    steps = segments.boundaries.len() - 1
    all_fetches = fetch_table(timeline, trainer).filter(
        (pl.col("start_ns") + pl.col("dur_ns")).is_between(segments.start_ns, segments.end_ns)
    )
    fetches = all_fetches.filter(pl.col("pid") != trainer.pid)
    timed = fetches.filter(pl.col("cpu_ns") >= 0)
    a_step = fetches.height / steps
    others_ns = growth(timeline, segments, "others.cpu_ns") or 0.0
    own_ns = process_growth(timeline, segments, "cpu_ns") or 0.0
    queued_ns = _queued_ns(timeline, trainer, segments)
    # The job itself takes cores, too.
    queued_ns *= others_ns / (others_ns + own_ns) if others_ns > 0 else 0.0
    return RunWork(
        trainer_cpu=_trainer_cpu(timeline, trainer, segments),
        fetch_cpu=(timed["cpu_ns"] * a_step / 1e9).to_list(),
        felt_frac=_felt_frac(segments, fetches),
        disturbed_frac=min(1.0, others_ns / segments.wall_ns),
        queued=queued_ns / segments.wall_ns * _mean_step_s(segments),
        supply=_supply_s(fetches, a_step, trainer.workers) if all_fetches.height else None,
    )


_LEAST_DISTURBED = 0.05
"""Of the fetches, as of the parts of a step (`signals/undisturbed.py`)."""


def _supply_s(fetches: pl.DataFrame, a_step: float, workers: int) -> float:
    """Seconds in which workers, side by side, prepare the batches of a step; 0 without any."""
    least_ns = fetches["dur_ns"].quantile(_LEAST_DISTURBED)
    return 0.0 if least_ns is None else least_ns * a_step / max(1, workers) / 1e9


def _mean_step_s(segments: StepSegments) -> float:
    ends = segments.boundaries
    return float(ends[-1] - ends[0]) / (ends.len() - 1) / 1e9


def _trainer_cpu(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> list[float]:
    """Seconds a step, between each two readings of the thread's CPU clock at the end of a step."""
    marks = (
        events.step_ends(timeline, events.of_thread(trainer.pid, trainer.tid))
        .filter(pl.col("end_ns").is_in(segments.boundaries.implode()))
        .sort("end_ns")
        .with_row_index("step")
        .filter(pl.col("cpu_clock_ns") > 0)
    )
    spent = marks["cpu_clock_ns"].diff() / marks["step"].cast(pl.Int64).diff() / 1e9
    seconds: list[float] = spent.drop_nulls().to_list()
    return seconds


def _felt_frac(segments: StepSegments, fetches: pl.DataFrame) -> float:
    """Time that the trainer waited over time of fetches: workers that keep up are not felt."""
    waits = segments.pieces.filter(pl.col("part").is_in(["input", "epoch start"]))
    waited = float((waits["end_ns"] - waits["start_ns"]).sum())
    fetched = float(fetches["dur_ns"].sum())
    return min(1.0, waited / fetched) if fetched > 0 else 0.0


def _queued_ns(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> float:
    """Of the window: waiting for a core.

    That of the trainer's process and, as workers wait side by side, that of the mean worker.
    """
    is_trainer = pl.col("pid") == trainer.pid
    own = queued_growth(timeline, segments, is_trainer) or 0.0
    beside = queued_growth(timeline, segments, ~is_trainer) or 0.0
    return own + beside / max(1, trainer.workers)
