"""The step without its input: how much of it would stay if the batch were empty."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.facts import ComputeFacts
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.student import DEVIATIONS
from fuelline.signals.recorded.budget import device_wait_frac, step_table, training_batches
from fuelline.signals.recorded.counters import thread_growth, usual
from fuelline.signals.recorded.fetching.stack_samples import find_stacks
from fuelline.signals.statistics import ratio, total
from fuelline.timeline import events

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import HotLine
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

NODE_SPINS = 0.083
"""CPU time of one operator with next to nothing to compute, forward and backward, in eager PyTorch
on one core, over that of the observer's fixed piece of Python at the same time: a chain of small
linear layers, measured by bench/dispatch_floor.py. It was 0.079 at one time, when the machine was
slow (18 us), and 0.086 at another (12 us); other chains have 0.051 to 0.095."""
_NODE_FLOOR_NS = 12_000
"""The same where the observer did not time its piece."""
_SMALLER = 0.75
"""A batch is called smaller if it has at most this share of the usual number of samples."""
_FEW_SMALLER = 2
_USUALLY = 0.5
"""A median of the loop's time below this much of its mean: a few loops are much longer."""
_NORMAL_MAD = 1.4826
"""Standard deviations in a median absolute deviation."""
_LARGE_WAIT = 0.2
"""Of compute: with less waiting for the device the host's own steps show nearly all of it."""


_NO_CLOCK = Missing(reason="no device clock")
_UPDATES = re.compile(r"_(single_tensor|multi_tensor|fused)_")
"""Functions in which torch's optimizers update the weights."""


def measure_compute(
    timeline: Timeline,
    trainer: Trainer,
    segments: StepSegments,
    loop_lines: list[HotLine],
    paced_share: Signal = _NO_CLOCK,
) -> ComputeFacts:
    """All that is known about the compute part of a step, waiting for the device included."""
    waiting = device_wait_frac(loop_lines)
    # A step ends with its optimizer: what the host waits for after that stands in the next one.
    after = (pl.col("loop").shift(-1).fill_null(0) * waiting).cast(pl.Int64)
    steps = step_table(segments).with_columns(compute_ns=pl.col("compute_ns") + after)
    since = pl.col("start_ns") >= segments.start_ns
    backward = events.backward_passes(timeline, events.of_thread(trainer.pid, trainer.tid) & since)
    timed = backward.filter(pl.col("cpu_ns") >= 0)  # the hooks read this clock at some passes only
    nodes = _graph_nodes(timeline, trainer)
    ran = _ran_when_ready(timeline, trainer, segments)
    batches = _samples_by_step(timeline, trainer, segments)
    compute_share = ratio(
        steps["compute_ns"], steps["wall_ns"], "frac", "budget.compute over steps"
    )
    return ComputeFacts(
        compute_share=compute_share,
        graph_nodes=nodes,
        node_seconds=_node_seconds(segments, nodes, backward.height, ran),
        dispatch_share=_dispatch_share(
            segments,
            nodes,
            backward.height,
            floor_ns=_node_floor_ns(timeline, segments) / ran,
            compute_ns=float(steps["compute_ns"].sum()),
        ),
        fixed_share=_fixed_share(steps, batches, waiting),
        host_cpu_share=ratio(
            timed["cpu_ns"] + timed["engine_cpu_ns"].clip(0, None),
            timed["dur_ns"] * ran,
            "frac",
            "backward.cpu over backward",
        ),
        paced_share=paced_share,
        batch_samples=_batch_samples(timeline, trainer, segments),
        core_wait_share=_core_wait_share(timeline, trainer, segments),
        passes_per_batch=_passes_per_batch(timeline, trainer, segments),
        optimizer_kernel=_optimizer_kernel(timeline, trainer, segments),
        crowded_share=_crowded_share(paced_share, compute_share, ran),
    )


def _optimizer_kernel(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> str:
    """The way of updating the weights that most stack samples of the optimizer show."""
    hits: Counter[str] = Counter()
    for frames, count in find_stacks(timeline, segments, (trainer.pid,), tid=trainer.tid):
        for frame in frames:
            if "/torch/optim/" in frame.file and _UPDATES.match(frame.function):
                hits[frame.function] += count
    return hits.most_common(1)[0][0] if hits else ""


def _core_wait_share(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> Signal:
    grown = thread_growth(timeline, segments, trainer.tid)
    if grown is None:
        return Missing(reason="the trainer's clocks were not read twice")
    return total(grown[1] / segments.wall_ns, "frac", "clocks.runq over window")


def _crowded_share(paced: Signal, computing: Signal, ran: float) -> Signal:
    """Of the time that the device waits for launches, what a core for the host would give back.

    With a core at any time the host needs `ran` of its time for the same calls, and the device's
    waiting shrinks by the rest. Autograd's own thread is taken to fare as the trainer's does.
    """
    if isinstance(paced, Missing) or isinstance(computing, Missing):
        return Missing(reason="whether the device waits for launches is not known")
    given_back = min(paced.value, (1 - ran) * computing.value)
    return total(given_back, "frac", "device waiting for launches x run queue")


def _graph_nodes(timeline: Timeline, trainer: Trainer) -> Signal:
    passes = events.backward_passes(timeline, pl.col("pid") == trainer.pid)
    counted = passes.filter(pl.col("graph_nodes") > 0)
    if not counted.height:
        return Missing(reason="no backward pass was counted: fewer than five, or none")
    return total(float(counted["graph_nodes"].median()), "count", "backward.nodes", counted.height)  # type: ignore[arg-type]


def _spent_ns(segments: StepSegments, *parts: str) -> float:
    pieces = segments.pieces.filter(pl.col("part").is_in(parts))
    return float((pieces["end_ns"] - pieces["start_ns"]).sum())


def _ran_when_ready(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> float:
    """Of the time that the trainer was ready to run: it had a core. 1 if that was not seen.

    On a crowded host a step takes longer without any more work in it; this takes the crowd out.
    """
    oncpu, queued = thread_growth(timeline, segments, trainer.tid) or (0.0, 0.0)
    return oncpu / (oncpu + queued) if oncpu > 0 else 1.0


def _node_seconds(segments: StepSegments, nodes: Signal, backwards: int, ran: float) -> Signal:
    if isinstance(nodes, Missing) or not backwards:
        return Missing(reason="the graph was not counted")
    spent = _spent_ns(segments, "forward", "backward") * ran
    return total(
        spent / (nodes.value * backwards) / 1e9, "s", "forward and backward per node", backwards
    )


def _node_floor_ns(timeline: Timeline, segments: StepSegments) -> float:
    spin_ns = usual(timeline, segments, "core.spin_ns")
    return _NODE_FLOOR_NS if spin_ns is None else NODE_SPINS * spin_ns


def _dispatch_share(
    segments: StepSegments, nodes: Signal, backwards: int, *, floor_ns: float, compute_ns: float
) -> Signal:
    if isinstance(nodes, Missing) or not backwards or not compute_ns:
        return Missing(reason="the graph was not counted")
    fixed = _spent_ns(segments, "optimizer") + min(
        nodes.value * floor_ns * backwards, _spent_ns(segments, "forward", "backward")
    )
    return total(fixed / compute_ns, "frac", "optimizer and operator floor over compute", backwards)


def _samples_by_step(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> pl.DataFrame:
    """Samples that each step consumed: | step | samples |."""
    batches = training_batches(timeline, trainer)
    used = _used_at(timeline, trainer, batches).filter(pl.col("used_ns") > segments.start_ns)
    index = segments.boundaries.search_sorted(used["used_ns"], side="left").cast(pl.Int64) - 1
    return (
        used.with_columns(index.alias("step"))
        .group_by("step")
        .agg(pl.col("samples").sum())
        .filter(pl.col("samples") > 0)
    )


def _used_at(timeline: Timeline, trainer: Trainer, batches: pl.DataFrame) -> pl.DataFrame:
    """When each batch was learned from: samples, used_ns.

    A loader that fetches ahead takes a batch in the step before. So the first batch of an epoch
    belongs to its first backward pass, and so on, where there are as many of one as of the other;
    where there never are, a batch belongs to the step that it was taken in.
    """
    passes = events.backward_passes(timeline, pl.col("pid") == trainer.pid)
    batch = batches.select("start_ns", "samples", is_batch=True, begins=pl.col("position") == 0)
    learning = passes.select("start_ns", samples=pl.lit(0, pl.Int64), is_batch=False, begins=False)
    both = (
        pl.concat([batch, learning])
        .sort("start_ns")
        .with_columns(epoch=pl.col("begins").cum_sum())
        .with_columns(number=pl.int_range(pl.len()).over("epoch", "is_batch"))
    )
    taken, learned = (
        both.filter(pl.col("is_batch") == is_batch).with_columns(size=pl.len().over("epoch"))
        for is_batch in (True, False)
    )
    used = taken.join(learned, on=["epoch", "number", "size"], how="inner", suffix="_learned")
    if used.height:
        return used.select("samples", used_ns="start_ns_learned")
    return batches.select("samples", used_ns="end_ns")


def _batch_samples(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> Signal:
    sizes = training_batches(timeline, trainer).filter(
        (pl.col("end_ns") > segments.start_ns) & (pl.col("samples") > 0)
    )["samples"]
    if not sizes.len():
        return Missing(reason="no batch size was seen")
    return total(_median(sizes), "count", "samples per batch", sizes.len())


def _passes_per_batch(timeline: Timeline, trainer: Trainer, segments: StepSegments) -> Signal:
    since = pl.col("start_ns") > segments.start_ns
    passes = events.backward_passes(timeline, (pl.col("pid") == trainer.pid) & since)
    batches = training_batches(timeline, trainer).filter(pl.col("end_ns") > segments.start_ns)
    if not batches.height:
        return Missing(reason="no batch was taken inside the window")
    return total(passes.height / batches.height, "count", "backward over next", batches.height)


def _waits_now_and_then(steps: pl.DataFrame, waiting: float) -> bool:
    """The host waits for the device in a few steps, for the work of those between as well."""
    waited = float(steps["loop"].sum()) * waiting
    is_rare = _median(steps["loop"]) < _USUALLY * float(steps["loop"].mean() or 0.0)  # type: ignore[arg-type]
    return is_rare and waited > _LARGE_WAIT * float(steps["compute_ns"].sum())


def _fixed_share(steps: pl.DataFrame, batches: pl.DataFrame, waiting: float) -> Signal:
    """Intercept of compute time over batch size, as a share of a usual step's compute time.

    Uses medians of the usual and of the smaller steps (the last batch of an epoch), because a
    least squares line would follow the few slow steps that every job has. The interval is that of
    their difference, by what usual steps differ by: two smaller ones on a busy machine tell little.
    """
    joined = steps.join(batches, on="step")
    usual_size = joined["samples"].median() if joined.height else None
    if not isinstance(usual_size, (int, float)) or usual_size < 1:
        return Missing(reason="no batch sizes to compare")
    if usual_size == 1:
        return Missing(reason="all batches had one sample")
    smaller = joined.filter(pl.col("samples") <= _SMALLER * usual_size)
    usual = joined.filter((pl.col("samples") - usual_size).abs() <= 0.05 * usual_size)
    if _waits_now_and_then(steps, waiting):
        return Missing(reason="the host waits for the device now and then, for several steps")
    if smaller.height < _FEW_SMALLER or usual.height < _FEW_SMALLER:
        return Missing(reason="all batches had the same size")
    size_small, time_small = _median(smaller["samples"]), _median(smaller["compute_ns"])
    time_usual = _median(usual["compute_ns"])
    per_sample = (time_usual - time_small) / (usual_size - size_small)
    share = min(1.0, max(0.0, 1 - per_sample * usual_size / time_usual))
    spread = _NORMAL_MAD * _median((usual["compute_ns"] - time_usual).abs()) / time_usual
    few = 1 / smaller.height + 1 / usual.height
    half = DEVIATIONS[90] * spread * math.sqrt(few) / (1 - size_small / usual_size)
    return Reading(
        value=share,
        unit="frac",
        low=max(0.0, share - half),
        high=min(1.0, share + half),
        level=90,
        count=smaller.height,
        origin="compute over batch size",
    )


def _median(series: pl.Series) -> float:
    return float(series.median() or 0.0)  # type: ignore[arg-type]
