"""Where the window went: parts that sum to the whole, steps, how much of the wait was felt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.findings import BudgetPart, StepStats, Window
from fuelline.schema.parts import STEP_PARTS, StepPart
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.recording import STEP_HOOK
from fuelline.signals.statistics import ratio, slope
from fuelline.timeline import events
from fuelline.timeline.segments import NO_EVENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.diagnosis.facts import HotLine
    from fuelline.schema.readings import Signal
    from fuelline.schema.run.recording import Blindspot
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

COMPUTE_PARTS: tuple[StepPart, ...] = ("transfer", "forward", "backward", "optimizer", "sync")
_SETTLING_STEPS = (4, 12)
"""A launch queue holds a few steps, and many loops read a loss every tenth step: a stall is paid
back within about as many steps. Both spans are tried."""
_SPANS = 10
"""A span must fit this often into the run, or chance decides."""
_FEW_STEPS = 20
"""Fewer have no quartiles to speak of."""
_USUAL_STALLS = 0.9
_NO_CLOCK = Missing(reason="no device clock")
_CLEARLY_HIDDEN = 0.6
_CLEARLY_BOUND = 0.5
"""Slope and share of variance from which a device is believed to hide stalls. On a crowded host the
compute of the trainer and the waits for its workers are loosely related for other reasons."""
_DOUBT = 3.0
"""Standard errors: a slope that is farther below zero is no chance."""


def find_failed_hook(timeline: Timeline) -> Blindspot | None:
    """A hook on the way of every step that failed, if one did."""
    return next((spot for spot in timeline.blindspots if spot.code == STEP_HOOK), None)


def measure_budget(
    segments: StepSegments,
    loop_lines: list[HotLine],
    *,
    watched: bool,
    own_frac: float = 0.0,
    queue_wait: Signal | None = None,
    is_whole: bool = True,
) -> list[BudgetPart]:
    """Share of each part, in the order of a step; parts that took no time are left out.

    The hooks say when the loop's own code ran, stack samples say how much of that was waiting for
    the device, and how much of the forward pass was none (`own_frac`), or was waiting for a thread
    that brings the batches (`queue_wait`, of the window). Without the observer
    (`watched` is false) nobody saw what the loop did: unexplained. So is all time between events
    when a hook has failed (`is_whole` is false).
    """
    pieces = segments.pieces if is_whole else segments.pieces.filter(pl.col("kind") != NO_EVENT)
    spent = pieces.group_by("part").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    by_part: dict[StepPart, int] = dict(spent.iter_rows())
    waiting = device_wait_frac(loop_lines)
    by_part["sync"] = by_part.get("sync", 0) + int(by_part.get("loop", 0) * waiting)
    by_part["loop"] = by_part.get("loop", 0) - int(by_part.get("loop", 0) * waiting)
    by_part["own code"] = int(by_part.get("forward", 0) * own_frac)
    waited = queue_wait.value if isinstance(queue_wait, Reading) else 0.0
    queued = min(by_part.get("forward", 0) - by_part["own code"], int(waited * segments.wall_ns))
    by_part["input"] = by_part.get("input", 0) + queued
    by_part["forward"] = by_part.get("forward", 0) - by_part["own code"] - queued
    if not watched:
        by_part["unexplained"] = by_part.get("unexplained", 0) + by_part.pop("loop", 0)
    # Whatever the segments do not cover is said, not spread over the parts.
    by_part["unexplained"] = (
        by_part.get("unexplained", 0) + segments.wall_ns - sum(by_part.values())
    )
    return [
        BudgetPart(
            part=part,
            seconds=by_part[part] / segments.kept_frac / 1e9,
            share=by_part[part] / segments.wall_ns,
        )
        for part in STEP_PARTS
        if by_part.get(part, 0) > 0 or part == "unexplained"
    ]


def device_wait_frac(loop_lines: list[HotLine]) -> float:
    """Of the samples between steps: waiting for the device (synchronize, .item() and the like)."""
    waiting = sum(line.share for line in loop_lines if line.stage == "sync")
    working = sum(line.share for line in loop_lines if line.stage == "loop")
    return waiting / (waiting + working) if waiting + working > 0 else 0.0


def measure_window(timeline: Timeline, segments: StepSegments) -> Window:
    """The window inside the run, by the run's own clock."""
    run, excerpts = timeline.run, timeline.excerpts
    start_ns, end_ns = segments.start_ns, segments.end_ns
    if excerpts is not None:
        start_ns, end_ns = excerpts.unfold(start_ns), excerpts.unfold(end_ns - 1) + 1
    ended_ns = end_ns if run.ended_ns is None else run.ended_ns
    return Window(
        seconds=segments.run_ns / 1e9,
        before_seconds=max(0, start_ns - run.started_ns) / 1e9,
        after_seconds=max(0, ended_ns - end_ns) / 1e9,
    )


def measure_steps(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> StepStats:
    """Step times from boundary to boundary; the window's first boundary only starts the clock.

    Their mean is that of the window, what follows the last step included, as in the budget.
    """
    seconds = segments.boundaries.diff().drop_nulls() / 1e9
    count = round(seconds.len() / segments.kept_frac)
    is_estimate = timeline.run.is_estimated
    samples = training_batches(timeline, trainer).filter(
        pl.col("end_ns").is_between(segments.start_ns, segments.end_ns) & (pl.col("samples") >= 0)
    )
    return StepStats(
        count=count,
        mean=segments.run_ns / 1e9 / count,
        p50=None if is_estimate else _number(seconds.median()),
        p95=None if is_estimate else _number(seconds.quantile(0.95, "linear")),
        kind=trainer.step_kind,
        samples_per_s=float(samples["samples"].sum()) / (segments.wall_ns / 1e9)
        if samples.height
        else None,
    )


def training_batches(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Batches that a training loader delivered, whoever took them."""
    taken = events.batches(timeline, (pl.col("pid") == trainer.pid) & events.has_succeeded())
    return taken.filter(pl.col("source_id").is_in(trainer.train_sources))


def count_job_batches(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> int | None:
    """Those of the window, of a job that came to its own end; tables may hold excerpts of them."""
    if timeline.run.exit_code != 0:
        return None
    ends = training_batches(timeline, trainer)["end_ns"]
    inside = int(ends.is_between(segments.start_ns, segments.end_ns).sum())
    return round(inside / segments.kept_frac)


_WAITS: tuple[StepPart, ...] = ("input", "epoch start")
STALLS: tuple[StepPart, ...] = (*_WAITS, "loop")
"""Parts in which the host does nothing for the device, which may still have work queued."""


def step_table(segments: StepSegments) -> pl.DataFrame:
    """One row per step: nanoseconds of each stall, of collectives, compute_ns proper, wall_ns."""
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        segments.pieces.group_by("step")
        .agg(
            *(
                length.filter(pl.col("part") == part).sum().alias(part)
                for part in (*STALLS, "collectives")
            ),
            length.filter(pl.col("part").is_in(COMPUTE_PARTS)).sum().alias("compute_ns"),
            length.sum().alias("wall_ns"),
        )
        .sort("step")
    )


def measure_hidden(
    trainer: Trainer,
    segments: StepSegments,
    device_idle: Signal = _NO_CLOCK,
    idle_ns: Mapping[StepPart, float] | None = None,
    *,
    is_fed: bool = False,
    most_idle: float = 1.0,
    carried: float = 0.0,
    is_estimate: bool = False,
) -> dict[StepPart, float]:
    """For each stall: how much of it an asynchronous device hides behind its queue, 0 to 1.

    The device's own clock says it outright, of each stall (`idle_ns`) or of all together: beyond
    its idle time they were hidden. Without one, while the host waits for a batch the device may
    still work through what was queued before; then a longer wait makes the rest of the step
    shorter, one for one, and the step as a whole does not change. The slope of the rest on the
    stall shows it: 0 means that every wait is felt, -1 that none is. A loader with workers
    that sets the pace shows the same slope, because it makes up for
    steps of any length: with workers this is asked only if they are known to keep up (`is_fed`).
    The same goes for what a step makes up for on the whole (`carried`). And no more waiting for
    input is felt than the device was idle, where the host could see that. Steps that are laid out
    from samples (`is_estimate`) are all alike: no slope can be read from them.
    """
    steps = step_table(segments)
    if idle_ns is not None:
        return {part: hide(idle_ns.get(part, 0.0), float(steps[part].sum())) for part in STALLS}
    if isinstance(device_idle, Reading):
        stalled = float(steps.select(pl.sum_horizontal(*STALLS).sum()).item()) / segments.wall_ns
        share = max(0.0, 1 - device_idle.value / stalled) if stalled > 0 else 0.0
        return dict.fromkeys(STALLS, share)
    hidden = (
        {}
        if is_estimate
        else {
            part: _hidden_fraction(steps[part], steps.select(_rest_of_step(part)).to_series())
            for part in STALLS
            if part != "input" or is_fed or not (trainer.workers or trainer.crew_tids)
        }
    )
    waited = float(steps["input"].sum()) / segments.wall_ns
    least = max(0.0, 1 - most_idle / waited) if waited > 0 else 0.0
    least = max(least, carried) if is_fed else least
    return {**hidden, "input": max(hidden.get("input", 0.0), least)}


def hide(felt_ns: float, whole_ns: float) -> float:
    """Of a stall of the host: what the device did not feel."""
    return max(0.0, 1 - felt_ns / whole_ns) if whole_ns > 0 else 0.0


def _rest_of_step(stall: StepPart) -> pl.Expr:
    """What a stall may make shorter.

    The first wait of an epoch stands in place of a usual one, so that the two are opposed whatever
    the device does: neither is the rest of the other.
    """
    others = ("loop",) if stall in _WAITS else _WAITS
    return pl.sum_horizontal("compute_ns", *others)


def measure_carry(segments: StepSegments) -> float:
    """How much shorter the host is held up in a step for what it waited just before, 0 to 1.

    A device with work in its queue goes on while the host waits for a batch or for other ranks, and
    lets it in the sooner after that. A host that computes, or waits for a device in every step, has
    no such memory: its next step is as long as ever. Both may drift, so that the changes from step
    to step have to show it, too.
    """
    # Ranks meet at the end of a step; a batch is waited for at its beginning.
    waited = pl.col("collectives").shift(1) + pl.col("input") + pl.col("loop")
    steps = (
        step_table(segments)
        .select(waited=waited, compute="compute_ns")
        .drop_nulls()
        .cast(pl.Float64)
    )
    if steps.height < _FEW_STEPS:
        return 0.0
    level, change = (
        slope(each["waited"], each["compute"])
        for each in (steps, steps.select(pl.all().diff()).drop_nulls())
    )
    if level is None or change is None:
        return 0.0
    is_clear = all(steepness + _DOUBT * error < 0 for steepness, error in (level, change))
    return min(1.0, -level[0]) if is_clear else 0.0


def measure_wait(segments: StepSegments, hidden_frac: float = 0.0) -> Signal:
    """Share of the window that the trainer sat in next() for training, less what was hidden."""
    steps = step_table(segments)
    felt = steps["input"] * (1 - hidden_frac)
    return ratio(felt, steps["wall_ns"], "frac", "budget.wait over steps")


def _hidden_fraction(stall_ns: pl.Series, rest_ns: pl.Series) -> float:
    """How much shorter the rest of a step gets per stall; 0 unless the two are clearly bound."""
    if stall_ns.len() < _FEW_STEPS:
        return 0.0
    spans = [span for span in _SETTLING_STEPS if stall_ns.len() >= _SPANS * span]
    found = [_paid_back(stall_ns, rest_ns, span) for span in spans]
    return max([_pinned(stall_ns, rest_ns), *found])


def _pinned(stall_ns: pl.Series, rest_ns: pl.Series) -> float:
    """How much less the step varies than its stall, by quartiles: the device sets its length.

    Quartiles, because a loop that reads a loss now and then has a few steps of any length.
    """
    stall, step = _quartile_range(stall_ns), _quartile_range(stall_ns + rest_ns)
    hidden = 1 - step / stall if stall > 0 else 0.0
    return hidden if hidden >= _CLEARLY_HIDDEN else 0.0


def _quartile_range(series: pl.Series) -> float:
    return float((series.quantile(0.75) or 0.0) - (series.quantile(0.25) or 0.0))


def _paid_back(stall_ns: pl.Series, rest_ns: pl.Series, span: int) -> float:
    """The same, compared in sums over this many steps.

    The longest stalls are left out: a queue that ran dry hides nothing, whatever it does otherwise.
    """
    sums = pl.DataFrame(
        {
            "stall": stall_ns.cast(pl.Float64).rolling_sum(span),
            "rest": rest_ns.cast(pl.Float64).rolling_sum(span),
        }
    ).drop_nulls()
    usual = sums.filter(pl.col("stall") <= pl.col("stall").quantile(_USUAL_STALLS))
    fitted = slope(usual["stall"], usual["rest"])
    if fitted is None or fitted[0] > -_CLEARLY_HIDDEN:
        return 0.0
    explained = usual.select(pl.corr("stall", "rest") ** 2).item()
    return min(1.0, -fitted[0]) if explained >= _CLEARLY_BOUND else 0.0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
