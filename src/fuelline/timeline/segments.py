"""The trainer thread's time, cut into segments that do not overlap and leave nothing out.

Hook events are segments as they are; the gaps between them get their part from what came before:
after a training batch it is forward, after the optimizer it is the loop's own code, and so on. The
segments cover the window from its first to its last nanosecond, so that a budget sums to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.wire import PART_OF_PAUSE, Flag, Kind, StepKind
from fuelline.timeline.events import has_succeeded, thread_events

if TYPE_CHECKING:
    from fuelline.schema.parts import StepPart
    from fuelline.timeline.timeline import Timeline
    from fuelline.timeline.trainer import Trainer

_PART_OF_KIND: dict[Kind, StepPart] = {
    Kind.SOURCE_START: "epoch start",
    Kind.PIN: "transfer",
    Kind.COPY: "transfer",
    Kind.BACKWARD: "backward",
    Kind.STEP: "optimizer",
    Kind.SYNC: "sync",
    Kind.GC: "garbage collection",
    Kind.ZOOM: "profiler",
}
_LASTING = [
    *(Kind.WAIT, Kind.COLLECTIVE, Kind.PAUSE),
    *(kind for kind in _PART_OF_KIND if kind != Kind.GC),
]
"""What ends the window: what is collected when the interpreter ends is no part of the training."""
_MODE_AFTER: dict[Kind, StepPart] = {Kind.BACKWARD: "optimizer", Kind.STEP: "loop"}
"""What the thread does after an event, until the next one says otherwise."""
_SELDOM = 10
"""Replays for each call of an optimizer, from which on they are the steps."""
NO_EVENT = 0
"""The kind of a piece that no record covers: a gap between two."""


@dataclass(frozen=True)
class Span:
    """The stretch of a trainer that is judged: from the end of its first step to its last event."""

    pid: int
    start_ns: int
    end_ns: int
    boundaries: pl.Series
    """End of each step inside the window, in order; the first equals `start_ns`."""
    kept_frac: float = field(default=1.0, kw_only=True)
    """Of the run's time that the tables hold, as of `Timeline`."""

    @property
    def wall_ns(self) -> int:
        """Length of the window."""
        return self.end_ns - self.start_ns

    @property
    def run_ns(self) -> float:
        """How long it lasted in the run, which is longer if only excerpts of that were kept."""
        return self.wall_ns / self.kept_frac

    def shifted(self, shift_ns: int) -> Span:
        """The same on another clock."""
        return replace(
            self,
            start_ns=self.start_ns + shift_ns,
            end_ns=self.end_ns + shift_ns,
            boundaries=self.boundaries + shift_ns,
        )


@dataclass(frozen=True)
class StepSegments(Span):
    """A span cut into segments."""

    pieces: pl.DataFrame
    """start_ns, end_ns, part, kind (`NO_EVENT` for a gap), step (index of that it starts in)."""

    def shifted(self, shift_ns: int) -> StepSegments:
        """The same on another clock."""
        moved = super().shifted(shift_ns)
        pieces = self.pieces.with_columns(pl.col("start_ns", "end_ns") + shift_ns)
        return replace(moved, pieces=pieces)  # type: ignore[return-value, call-arg]

    def between(self, start_ns: int, end_ns: int) -> StepSegments | None:
        """The steps that lie inside this stretch; None if there are not two."""
        inside = self.boundaries.filter((self.boundaries >= start_ns) & (self.boundaries <= end_ns))
        if inside.len() < 2:
            return None
        first_ns = int(inside[0])
        last_ns = min(end_ns, self.end_ns) if end_ns >= self.end_ns else int(inside[-1])
        pieces = (
            self.pieces.filter((pl.col("end_ns") > first_ns) & (pl.col("start_ns") < last_ns))
            .with_columns(
                pl.col("start_ns").clip(first_ns, None), pl.col("end_ns").clip(None, last_ns)
            )
            .drop("step")
        )
        return replace(
            self,
            start_ns=first_ns,
            end_ns=last_ns,
            boundaries=inside,
            pieces=_number_steps(pieces, inside),
        )


def find_span(timeline: Timeline, trainer: Trainer) -> Span | None:
    """The window alone, for a tenth of the price of its segments.

    None with fewer than two step boundaries, or no time between.
    """
    return _span(thread_events(timeline, trainer.pid, trainer.tid), timeline, trainer)


def _span(events: pl.DataFrame, timeline: Timeline, trainer: Trainer) -> Span | None:
    boundaries = _boundaries(events, trainer)
    if boundaries.len() < 2:
        return None
    start_ns, end_ns = int(boundaries[0]), _find_end(events, boundaries)
    if end_ns <= start_ns:
        return None
    return Span(
        pid=trainer.pid,
        start_ns=start_ns,
        end_ns=end_ns,
        boundaries=boundaries,
        kept_frac=timeline.kept_frac,
    )


def _find_end(events: pl.DataFrame, boundaries: pl.Series) -> int:
    """When the last event that lasts was over, and not before the last step.

    A collective divides what the thread does; what of one follows the thread's last event does not
    count.
    """
    own = pl.col("kind").is_in([*_PART_OF_KIND, Kind.WAIT, Kind.PAUSE])
    ends_ns = events.select(
        pl.col("end_ns")
        .filter(pl.col("kind").is_in(_LASTING))
        .clip(None, pl.col("end_ns").filter(own).max())
    ).to_series()
    return max(int(ends_ns.max() or 0), int(boundaries[-1]))  # type: ignore[arg-type]


def cut_segments(timeline: Timeline, trainer: Trainer) -> StepSegments | None:
    """Cut the window into pieces; None as for `find_span`."""
    events = thread_events(timeline, trainer.pid, trainer.tid)
    span = _span(events, timeline, trainer)
    if span is None:
        return None
    pieces = _overlay(
        _with_gaps(_outermost(_named(_after_closures(events), trainer))),
        events.filter(pl.col("kind").is_in([Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT])),
    )
    inside = pieces.with_columns(
        pl.col("start_ns").clip(span.start_ns, None), pl.col("end_ns").clip(None, span.end_ns)
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    return StepSegments(
        pid=span.pid,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        boundaries=span.boundaries,
        kept_frac=span.kept_frac,
        pieces=_number_steps(inside, span.boundaries),
    )


def _boundaries(events: pl.DataFrame, trainer: Trainer) -> pl.Series:
    """Ends of steps: of the optimizer that steps most (of several, the one that steps last).

    Without an optimizer a step ends when a batch has arrived.
    """
    if trainer.step_kind == "train":
        steps = _steps(events)
        leader = (
            steps.group_by("owner")
            .agg(pl.len().alias("n"), pl.col("start_ns").min().alias("first"))
            .sort("n", "first", descending=True)["owner"][0]
        )
        return steps.filter(pl.col("owner") == leader)["end_ns"]
    return events.filter(
        (pl.col("kind") == Kind.WAIT)
        & pl.col("owner").is_in(trainer.train_sources)
        & has_succeeded()
    )["end_ns"]


def _steps(events: pl.DataFrame) -> pl.DataFrame:
    """Ends of steps, each once.

    An optimizer that steps again with neither a batch nor a backward pass in between has not
    learned anything new: a library calls it for each group of weights. A graph that is replayed is
    a step where no optimizer is called beside it. Where nothing but steps was seen, all count.
    """
    turns = [Kind.WAIT, Kind.BACKWARD]
    learned = (
        events.filter(pl.col("kind").is_in([Kind.STEP, *turns]))
        .sort("end_ns", maintain_order=True)
        .with_columns(turn=pl.col("kind").is_in(turns).cum_sum())
    )
    steps = learned.filter(pl.col("kind") == Kind.STEP)
    is_replay = pl.col("step_kind") == StepKind.REPLAY
    replays, called = steps.filter(is_replay), steps.filter(~is_replay)
    begun_ns = replays["start_ns"].min()
    still = called.filter(pl.col("start_ns") > begun_ns) if replays.height else called
    # Before a whole step is captured an optimizer is called some times; after that no more.
    steps = steps if still.height * _SELDOM < replays.height else called
    if steps["turn"].n_unique() <= 1:
        return steps
    return steps.unique(["turn", "owner"], keep="last", maintain_order=True)


def _after_closures(events: pl.DataFrame) -> pl.DataFrame:
    """Let an optimizer step begin after the backward passes inside it.

    A closure runs forward and backward, and maybe takes a batch, before the optimizer does its own
    work. Lightning hands one to every optimizer.
    """
    backward = events.filter(pl.col("kind") == Kind.BACKWARD)
    passes = backward.select("end_ns", closed_ns=pl.col("end_ns"))
    inside = (pl.col("kind") == Kind.STEP) & (pl.col("closed_ns") > pl.col("start_ns"))
    return (
        events.sort("end_ns")
        .join_asof(passes.sort("end_ns"), on="end_ns")
        .with_columns(
            start_ns=pl.when(inside).then("closed_ns").otherwise("start_ns"),
        )
        .sort("start_ns", "end_ns", descending=[False, True])
    )


def _named(events: pl.DataFrame, trainer: Trainer) -> pl.DataFrame:
    """Give each hook event its part and the mode that follows it."""
    kind = pl.col("kind")
    # One source may serve both training and validation: a batch is for validation if gradients were
    # off and no learning follows it.
    learning = pl.col("flags").cast(pl.Int64) & int(Flag.TRAINING) != 0
    learns = kind.is_in([Kind.BACKWARD, Kind.STEP])
    marks = pl.when(kind == Kind.WAIT).then(pl.lit(0)).when(learns).then(pl.lit(1))
    followed = marks.shift(-1).backward_fill() == 1
    is_training = pl.col("owner").is_in(trainer.train_sources) & (
        learning | followed | (kind != Kind.WAIT) | (trainer.step_kind == "batch")
    )
    ended = pl.col("flags").cast(pl.Int64) & int(Flag.END) != 0
    is_wait = kind == Kind.WAIT
    told = _with_skipped(
        events.with_columns(
            training=is_training,
            is_batch=is_wait & is_training & ~ended,
            stretch=learns.cum_sum(),
        )
    )
    training = pl.col("training")
    turn = (pl.col("position") == 0) | ended | pl.col("skipped")
    # An iterator built for validation is part of validation.
    part = (
        pl.when(is_wait & training & turn)
        .then(pl.lit("epoch start"))
        .when(is_wait & training)
        .then(pl.lit("input"))
        .when(is_wait | ((kind == Kind.SOURCE_START) & ~training))
        .then(pl.lit("validation"))
        .when(kind == Kind.PAUSE)
        .then(
            pl.col("pause_kind").replace_strict(
                PART_OF_PAUSE, default="unexplained", return_dtype=pl.String
            )
        )
        .otherwise(kind.replace_strict(_PART_OF_KIND, default=None, return_dtype=pl.String))
    )
    mode = (
        pl.when(is_wait & ended)
        .then(pl.lit("loop"))
        .when(is_wait & training)
        .then(pl.lit("forward"))
        .when(is_wait)
        .then(pl.lit("validation"))
        .when((kind == Kind.SOURCE_START) & training)
        .then(pl.lit("epoch start"))
        .otherwise(kind.replace_strict(_MODE_AFTER, default=None, return_dtype=pl.String))
    )
    named = told.select("start_ns", "end_ns", "kind", part.alias("part"), mode.alias("mode"))
    return named.filter(pl.col("part").is_not_null())


def _with_skipped(events: pl.DataFrame) -> pl.DataFrame:
    """Mark batches at the start of an epoch beyond those of a usual step: a resumed job skips them.

    A wrapper that fetches one batch ahead takes one more there, too, which is the epoch's first.
    """
    batches = pl.col("is_batch")
    usual = events.filter(batches)["stretch"].value_counts()["count"].median()
    left = batches.cum_sum(reverse=True).over("stretch")
    is_first = (batches & (pl.col("position") == 0)).any().over("stretch")
    return events.with_columns(skipped=batches & is_first & (left > pl.lit(usual)))


def _outermost(events: pl.DataFrame) -> pl.DataFrame:
    """Drop events that lie inside an earlier one: a collection in backward is part of it."""
    reached = pl.col("end_ns").cum_max().shift(1).fill_null(0)
    return events.filter(pl.col("end_ns") > reached)


def _with_gaps(events: pl.DataFrame) -> pl.DataFrame:
    """Fill the gaps between events with the mode that the last event left behind.

    What of a step comes next tells what a gap was: what an optimizer's mark follows is the
    optimizer's (clipping, unscaling, the step itself), after a backward pass or another optimizer;
    what a backward pass follows with no batch in between is a forward pass (several backwards a
    step, data from elsewhere).
    """
    is_turn = pl.col("kind").is_in([Kind.WAIT, Kind.SOURCE_START, Kind.BACKWARD, Kind.STEP])
    follows = pl.when(is_turn).then("kind").shift(-1).backward_fill()
    mode = pl.col("mode").forward_fill()
    is_learning = mode.is_in(["optimizer", "loop"])
    # A step that is one call, as of JAX, has no backward pass for an optimizer to follow.
    learning = "optimizer" if (events["kind"] == Kind.BACKWARD).any() else "forward"
    part = (
        pl.when(is_learning & (follows == Kind.STEP))
        .then(pl.lit(learning))
        .when(is_learning & (follows == Kind.BACKWARD))
        .then(pl.lit("forward"))
        .when(mode == "optimizer")
        .then(pl.lit("loop"))
        .otherwise(mode)
        .fill_null("unexplained")
    )
    gaps = events.select(
        pl.col("end_ns").alias("start_ns"),
        pl.col("start_ns").shift(-1).alias("end_ns"),
        part.alias("part"),
        pl.lit(NO_EVENT, pl.UInt8).alias("kind"),
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    reached = pl.col("end_ns").cum_max().shift(1).fill_null(0)
    pieces = events.select(
        pl.max_horizontal("start_ns", reached).alias("start_ns"), "end_ns", "part", "kind"
    )
    return pl.concat([pieces, gaps]).sort("start_ns", "end_ns")


def _overlay(whole: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Cut collectives out of whatever they lie in: backward, forward, a gap.

    | whole    | 0..10 backward |      | 0..6 backward | 6..9 collectives | 9..10 backward |
    | collective | 6..9         |  ->
    """
    if not collectives.height:
        return whole
    reached = pl.col("end_ns").cum_max().shift(1).fill_null(0)
    cuts = collectives.select(
        pl.max_horizontal("start_ns", reached).alias("cut_ns"), pl.col("end_ns").alias("cut_end_ns")
    ).filter(pl.col("cut_end_ns") > pl.col("cut_ns"))
    edges = [whole["start_ns"], whole["end_ns"], cuts["cut_ns"], cuts["cut_end_ns"]]
    pieces = (
        pl.concat([edge.alias("start_ns") for edge in edges])
        .unique()
        .sort()
        .to_frame()
        .with_columns(piece_end_ns=pl.col("start_ns").shift(-1))
        .drop_nulls()
        .set_sorted("start_ns")
    )
    named = pieces.join_asof(
        whole.with_columns(whole_ns=pl.col("start_ns")), on="start_ns", strategy="backward"
    ).filter(pl.col("end_ns") > pl.col("start_ns"))
    is_cut = pl.col("cut_end_ns") > pl.col("start_ns")
    overlaid: pl.DataFrame = named.join_asof(
        cuts, left_on="start_ns", right_on="cut_ns", strategy="backward"
    ).select(
        "start_ns",
        pl.col("piece_end_ns").alias("end_ns"),
        pl.when(is_cut).then(pl.lit("collectives")).otherwise("part").alias("part"),
        pl.when(is_cut).then(pl.lit(Kind.COLLECTIVE, pl.UInt8)).otherwise("kind").alias("kind"),
    )
    return overlaid


def _number_steps(pieces: pl.DataFrame, boundaries: pl.Series) -> pl.DataFrame:
    """A piece belongs to the step in which it starts; 0 is the first step of the window."""
    index = boundaries.search_sorted(pieces["start_ns"], side="right").cast(pl.Int64) - 1
    return pieces.with_columns(index.alias("step"))
