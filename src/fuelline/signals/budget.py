"""Where the window went: parts that sum to the whole, steps, and how much of the wait really hurt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.findings import BudgetPart, StepStats, Window
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.wire import Flag, Kind
from fuelline.signals.estimate import ratio, slope
from fuelline.timeline.tiles import PARTS, Tiling

if TYPE_CHECKING:
    from fuelline.timeline import Timeline
    from fuelline.timeline.trainer import Trainer

COMPUTE_PARTS = ("transfer", "forward", "backward", "optimizer", "sync")
_HIDDEN_BLOCK_STEPS = 4
"""Steps summed before comparing wait with compute: an asynchronous queue settles over a few steps."""
_SURE_ERROR = 0.25
"""Standard error of the slope below which hidden waiting is believed."""


def measure_budget(tiling: Tiling, *, watched: bool) -> list[BudgetPart]:
    """Share of each part, in the order of a step; parts that took no time are left out.

    The hooks say when the loop's own code ran, only the observer says what it did. Without the observer
    (`watched` is false) that time is unexplained.
    """
    spent = tiling.tiles.group_by("part").agg(
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
    )
    by_part = dict(spent.iter_rows())
    if not watched:
        by_part["unexplained"] = by_part.get("unexplained", 0) + by_part.pop("loop", 0)
    # Tiles cover the window by construction; anything else is said, not spread over the parts.
    by_part["unexplained"] = by_part.get("unexplained", 0) + tiling.wall_ns - sum(by_part.values())
    return [
        BudgetPart(part=part, seconds=by_part[part] / 1e9, share=by_part[part] / tiling.wall_ns)
        for part in PARTS
        if by_part.get(part, 0) > 0 or part == "unexplained"
    ]


def measure_window(timeline: Timeline, tiling: Tiling) -> Window:
    """The window inside the run."""
    run = timeline.run
    ended = run.ended_ns if run.ended_ns is not None else tiling.end_ns
    return Window(
        seconds=tiling.wall_ns / 1e9,
        before_seconds=max(0, tiling.start_ns - run.started_ns) / 1e9,
        after_seconds=max(0, ended - tiling.end_ns) / 1e9,
    )


def measure_steps(timeline: Timeline, trainer: Trainer, tiling: Tiling) -> StepStats:
    """Step times from boundary to boundary; the window's first boundary only starts the clock."""
    seconds = tiling.boundaries.diff().drop_nulls() / 1e9
    samples = training_batches(timeline, trainer).filter(
        pl.col("end_ns").is_between(tiling.start_ns, tiling.end_ns)
    )
    return StepStats(
        count=seconds.len(),
        mean=_number(seconds.mean()),
        p50=_number(seconds.median()),
        p95=_number(seconds.quantile(0.95, "linear")),
        kind=trainer.step_kind,
        samples_per_s=float(samples["b"].sum()) / (tiling.wall_ns / 1e9)
        if samples.height
        else None,
    )


def training_batches(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Batches that a training loader delivered, whoever took them."""
    return (
        timeline.table("events")
        .filter(
            (pl.col("pid") == trainer.pid)
            & (pl.col("kind") == Kind.NEXT)
            & pl.col("a").is_in(trainer.train_loaders)
            & (pl.col("flags").cast(pl.Int64) & int(Flag.END | Flag.ERROR) == 0)
        )
        .with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    )


def step_table(tiling: Tiling) -> pl.DataFrame:
    """One row a step: wait_ns for input, compute_ns for the rest of the step proper, wall_ns."""
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        tiling.tiles.group_by("step")
        .agg(
            length.filter(pl.col("part") == "input").sum().alias("wait_ns"),
            length.filter(pl.col("part").is_in(COMPUTE_PARTS)).sum().alias("compute_ns"),
            length.sum().alias("wall_ns"),
        )
        .sort("step")
    )


def measure_wait(tiling: Tiling) -> Signal:
    """Share of the window that the trainer sat in next() of a training loader."""
    steps = step_table(tiling)
    return ratio(steps["wait_ns"], steps["wall_ns"], "frac", "budget.wait over steps")


def measure_exposed_wait(tiling: Tiling) -> Signal:
    """Share of the window that the accelerator really lacked input.

    With an asynchronous device the host may wait for a batch while the device still works through
    its queue; then a longer wait makes the following compute shorter, one for one, and the step as
    a whole does not change. The slope of compute on wait tells: 0 means that every wait is felt, -1
    that none is.
    """
    wait = measure_wait(tiling)
    if isinstance(wait, Missing):
        return wait
    hidden = _hidden_fraction(step_table(tiling))
    if hidden == 0:
        return Reading(
            value=wait.value,
            unit="frac",
            low=wait.low,
            high=wait.high,
            count=wait.count,
            origin="budget.exposed_wait",
        )
    keep = 1 - hidden
    return Reading(
        value=wait.value * keep,
        unit="frac",
        low=None if wait.low is None else wait.low * keep,
        high=None if wait.high is None else wait.high * keep,
        count=wait.count,
        origin="budget.exposed_wait",
    )


def _hidden_fraction(steps: pl.DataFrame) -> float:
    """How much of the waiting an asynchronous device hides, 0 to 1."""
    blocks = (
        steps.with_columns(block=pl.col("step") // _HIDDEN_BLOCK_STEPS)
        .group_by("block")
        .agg(pl.col("wait_ns").sum(), pl.col("compute_ns").sum(), pl.len().alias("n"))
        .filter(pl.col("n") == _HIDDEN_BLOCK_STEPS)
    )
    fitted = slope(blocks["wait_ns"].cast(pl.Float64), blocks["compute_ns"].cast(pl.Float64))
    if fitted is None or fitted[1] > _SURE_ERROR:
        return 0.0
    return min(1.0, max(0.0, -fitted[0]))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
