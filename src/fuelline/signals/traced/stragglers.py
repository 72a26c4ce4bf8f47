"""Why workers of stages and replicas wait for each other, by replaying what would be without it.

An operation's time is taken apart: the mean of its kind, what its stage adds in every replica, what
its worker adds over the replicas of its stage, and what is left from one microbatch to the next.
Each is taken away in turn and the steps are replayed. The method follows "Understanding Stragglers
in Large Model Training Using What-if Analysis" (arXiv 2505.05713); the parts are our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.diagnosis.findings import LateRank
from fuelline.schema.diagnosis.stragglers import StragglerEffect, StragglerFacts
from fuelline.schema.run.trace import DeviceKind
from fuelline.timeline.replay import Operation, ReplayedStep, StuckError

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Collectives
    from fuelline.schema.diagnosis.stragglers import StragglerCause
    from fuelline.timeline.trace import Trace

_MOST_OPERATIONS = 40_000
"""What is replayed six times in about two seconds; of longer traces, evenly spaced steps."""
_EXPLAINS = 1 / 3
"""Of the time lost to unevenness: the least that a cause must give back to speak for the job."""
_SLOW_SHARE = 0.03
"""Of the workers, at least one: how many may be called slow (the paper's choice, section 4.3)."""


_FIELDS = ("rank", "start_ns", "end_ns", "group", "sequence")
"""In the order of `replay.Operation`."""


@dataclass(frozen=True)
class _Worker:
    stage: int
    replica: int


class _Job:
    """The steps that are replayed, and a table of their operations in the same order."""

    def __init__(self, trace: Trace, places: dict[int, _Worker]) -> None:
        self.places = places
        frame = pl.concat([_operations(trace, rank) for rank in sorted(places)])
        groups = pl.col("group").rank("dense").cast(pl.Int64)
        self.frame = (
            frame.join(_choose_steps(frame), on="step")
            .with_columns(group=groups)
            .sort("step", "rank", "start_ns", "end_ns")
        )
        self.steps = [
            ReplayedStep([Operation(*row) for row in own.select(_FIELDS).iter_rows()])
            for own in self.frame.partition_by("step", maintain_order=True)
        ]
        taken = [each for step in self.steps for each in step.durations_ns()]
        self.frame = self.frame.with_columns(
            took=pl.Series(taken, dtype=pl.Float64),
            stage=pl.col("rank").replace_strict(
                {rank: each.stage for rank, each in places.items()}
            ),
            nth=pl.int_range(pl.len()).over("step", "rank", "kind"),
        )

    def replay_seconds(self, took: pl.Series) -> float:
        """Mean length of a step with these durations."""
        values = took.to_list()
        total_ns, at = 0.0, 0
        for step in self.steps:
            total_ns += step.replay_ns(values[at : at + len(step.operations)])
            at += len(step.operations)
        return total_ns / len(self.steps) / 1e9


def measure_stragglers(trace: Trace) -> StragglerFacts | None:
    """None if the trace does not name stages and replicas, or its order cannot be replayed."""
    places = _find_places(trace)
    if len(places) < 2 or len(trace.facts.sources) > 1:  # several files are several jobs
        return None
    try:
        return _measure(_Job(trace, places))
    except StuckError:
        return None


def _measure(job: _Job) -> StragglerFacts:
    frame = _take_apart(job.frame)
    recorded = job.replay_seconds(frame["took"])
    ideal = job.replay_seconds(frame["ideal"])
    lost = recorded - ideal
    slow = _slowest_workers(frame)
    evened: dict[StragglerCause, pl.Expr] = {
        "slow worker": pl.when(pl.col("rank").is_in(slow) & pl.col("computes"))
        .then(pl.col("took") - pl.col("of_worker"))
        .otherwise("took"),
        "uneven stages": pl.when("computes")
        .then(pl.col("took") - pl.col("of_stage"))
        .otherwise("took"),
        "uneven microbatches": pl.when("computes").then("worker_mean").otherwise("took"),
        "slow exchange": pl.when("computes").then("took").otherwise("ideal"),
    }
    effects = []
    for cause, durations in evened.items():
        took = frame.select(durations.clip(lower_bound=0).alias("took"))["took"]
        recovered = recorded - job.replay_seconds(took)
        effects.append(_describe(frame, cause, slow, recovered, lost))
    effects.sort(key=lambda effect: -effect.share)
    stages = {place.stage for place in job.places.values()}
    return StragglerFacts(
        workers=len(job.places),
        stages=len(stages),
        replicas=len({place.replica for place in job.places.values()}),
        steps=len(job.steps),
        step_seconds=recorded,
        ideal_seconds=ideal,
        slowdown=recorded / ideal if ideal else 1.0,
        effects=effects,
    )


def blame_root(collectives: Collectives, found: StragglerFacts | None) -> Collectives:
    """Culprits by what the replay shows: who comes last may itself wait for somebody else.

    Without one slow worker nobody is a culprit; stages and microbatches are no ranks.
    """
    if found is None or not found.effects or found.effects[0].share < _EXPLAINS:
        return collectives
    effect = found.effects[0]
    met = {late.rank: late for late in collectives.culprits}
    culprits = [
        LateRank(
            rank=rank,
            late_count=met[rank].late_count if rank in met else 0,
            of=met[rank].of if rank in met else 0,
            caused_wait_seconds=effect.recovered_seconds * found.steps * (found.workers - 1),
            because=f"it takes {effect.ratio or 1:.1f}x as long as the replicas of its stage",
            stage="compute",
            limit="imbalance",
            part="computing longer than its replicas",
        )
        for rank in effect.ranks
    ]
    return msgspec.structs.replace(collectives, culprits=culprits)


def _find_places(trace: Trace) -> dict[int, _Worker]:
    """Rank to stage and replica, as far as the importer learnt them."""
    return {
        rank.rank: _Worker(int(rank.settings["stage"]), int(rank.settings["dp_rank"]))
        for rank in trace.facts.ranks
        if {"stage", "dp_rank"} <= rank.settings.keys()
    }


def _operations(trace: Trace, rank: int) -> pl.DataFrame:
    """What one worker did, with the step that it belongs to; pauses of Python count as its work."""
    texts = trace.texts(rank)
    device = trace.table("device", rank).with_columns(
        computes=pl.col("kind") == int(DeviceKind.COMPUTE)
    )
    host = trace.table("host", rank).with_columns(
        computes=pl.lit(value=True), group=pl.lit(None, pl.UInt32), sequence=pl.lit(None, pl.Int64)
    )
    columns = ("start_ns", "end_ns", "name", "computes", "group", "sequence")
    steps = trace.table("steps", rank).select("step", pl.col("start_ns").alias("from_ns"))
    return (
        pl.concat([device.select(columns), host.select(columns)])
        .sort("start_ns")
        .join_asof(steps.sort("from_ns"), left_on="start_ns", right_on="from_ns")
        .with_columns(
            rank=pl.lit(rank, pl.Int64),
            kind=pl.col("name").replace_strict(texts, default="", return_dtype=pl.String),
            group=pl.col("group").replace_strict(texts, default=None, return_dtype=pl.String),
        )
        .drop_nulls("step")
        .select("step", "rank", "kind", "computes", "start_ns", "end_ns", "group", "sequence")
    )


def _choose_steps(frame: pl.DataFrame) -> pl.DataFrame:
    """Evenly spaced steps with about as many operations as can be replayed soon."""
    steps = frame.select(pl.col("step").unique().sort())
    every = max(1, round(frame.height / _MOST_OPERATIONS))
    return steps.gather_every(min(every, steps.height))


def _take_apart(frame: pl.DataFrame) -> pl.DataFrame:
    """Beside each duration: the ideal, the worker's mean, what worker and stage add to the mean.

    A stage's own is the lower median of its replicas, so that one slow worker is not its stage.
    """
    usual = pl.when("computes").then(pl.col("took").mean()).otherwise(pl.col("took").median())
    means = frame.group_by("stage", "rank", "kind").agg(worker_mean=pl.col("took").mean())
    typical = means.group_by("stage", "kind").agg(
        typical=pl.col("worker_mean").quantile(0.5, interpolation="lower")
    )
    return (
        frame.with_columns(ideal=usual.over("kind", "computes"))
        .join(means, on=["stage", "rank", "kind"], maintain_order="left")
        .join(
            typical.with_columns(
                of_stage=pl.col("typical") - pl.col("typical").mean().over("kind")
            ),
            on=["stage", "kind"],
            maintain_order="left",
        )
        .with_columns(of_worker=pl.col("worker_mean") - pl.col("typical"))
    )


def _slowest_workers(frame: pl.DataFrame) -> list[int]:
    """Those that add most to what the replicas of their stage take."""
    added = (
        frame.filter("computes")
        .group_by("rank")
        .agg(pl.col("of_worker").sum())
        .filter(pl.col("of_worker") > 0)
        .sort("of_worker", "rank", descending=[True, False])
    )
    most = max(1, int(_SLOW_SHARE * frame["rank"].n_unique()))
    return added["rank"].head(most).to_list()


def _describe(
    frame: pl.DataFrame, cause: StragglerCause, slow: list[int], recovered: float, lost: float
) -> StragglerEffect:
    share = recovered / lost if lost > 0 else 0.0
    if cause == "slow worker":
        own = frame.filter(pl.col("computes") & pl.col("rank").is_in(slow))
        ratio = _over(own["took"].sum(), own["typical"].sum())
        return StragglerEffect(
            cause=cause, share=share, recovered_seconds=recovered, ranks=slow, ratio=ratio
        )
    if cause == "uneven stages":
        stage, ratio = _longest_stage(frame)
        return StragglerEffect(
            cause=cause, share=share, recovered_seconds=recovered, stage=stage, ratio=ratio
        )
    correlation = _correlate(frame) if cause == "uneven microbatches" else None
    return StragglerEffect(
        cause=cause, share=share, recovered_seconds=recovered, correlation=correlation
    )


def _longest_stage(frame: pl.DataFrame) -> tuple[int | None, float | None]:
    """The stage with the most work a step, and that over the mean of the others."""
    work = (
        frame.filter("computes")
        .group_by("stage")
        .agg((pl.col("typical").sum() / pl.col("rank").n_unique()).alias("work"))
        .sort("work", "stage", descending=[True, False])
    )
    if work.height < 2:
        return None, None
    others = work["work"][1:].mean()
    return int(work["stage"][0]), _over(work["work"][0], others)


def _correlate(frame: pl.DataFrame) -> float | None:
    """Between forward and backward of the same microbatch, each over its worker's mean."""
    relative = frame.filter("computes").select(
        "step", "rank", "nth", "kind", ratio=pl.col("took") / pl.col("worker_mean")
    )
    keys = ["step", "rank", "nth"]
    both = relative.filter(pl.col("kind").str.starts_with("forward")).join(
        relative.filter(pl.col("kind").str.starts_with("backward")), on=keys
    )
    value = both.select(pl.corr("ratio", "ratio_right")).item() if both.height > 2 else None
    return value if value is not None and value == value else None  # noqa: PLR0124 - NaN


def _over(part: object, whole: object) -> float | None:
    return float(part) / float(whole) if whole else None  # type: ignore[arg-type]
