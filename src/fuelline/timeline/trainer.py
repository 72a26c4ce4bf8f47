"""Who trains: the process, the thread, its sources and their workers. Pure lookups, no time yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from fuelline.schema.wire import Flag, Kind
from fuelline.timeline.events import crews, fetches, learning_events, worker_starts

if TYPE_CHECKING:
    from fuelline.timeline.timeline import Timeline

_TRAINED_SHARE = 0.1
"""A source is a training source if at least this share of the stretches between two learning events
that have batches of it end with one: an epoch of a validation source mostly does not."""
_COMPANION_SHARE = 0.5
"""Of the stretches that feed a step: a source with a batch in so many feeds the steps as well."""
_FAIR_SHARE = 0.1
"""Without an optimizer: of the batches of the busiest source."""


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """The process and thread that the steps belong to."""

    pid: int
    tid: int
    step_kind: Literal["train", "batch", "time"]
    """batch: no optimizer was seen, so a step is a batch. time: neither, so a step is a second."""
    train_sources: tuple[int, ...]
    """Ids of the sources that feed steps; the others are validation."""
    worker_pids: tuple[int, ...]
    """Workers of the training sources, over the whole run."""
    workers: int
    """How many of them there are at a time."""
    reader_tid: int
    """The thread that takes batches; differs from `tid` if the job prefetches in a thread."""
    rank: int | None = None
    """Of a distributed job."""
    crew_tids: tuple[int, ...] = ()
    """Threads of its own process that prepare batches for the training sources."""
    worker_tids: tuple[int, ...] = ()
    """Threads of the workers that prepare them, where they are not the main ones."""


def find_trainers(timeline: Timeline) -> list[Trainer]:
    """Every process that ran optimizer steps, else that took batches; by rank, then by steps."""
    workers = worker_starts(timeline)
    makers = fetches(timeline, pl.lit(value=True)).select("pid", member="tid").unique()
    crew = crews(timeline).join(
        makers.with_columns(fetches=pl.lit(value=True)), on=["pid", "member"], how="left"
    )
    crew = crew.with_columns(pl.col("fetches").fill_null(value=False))
    in_workers = pl.col("pid").is_in(workers["worker_pid"].unique().implode())
    own = learning_events(timeline, ~in_workers)
    ranks = {facts.pid: facts.rank for facts in timeline.processes}
    kinds: tuple[tuple[Kind, Literal["train", "batch"]], ...] = (
        (Kind.STEP, "train"),
        (Kind.WAIT, "batch"),
    )
    for kind, step_kind in kinds:
        counts = (
            own.filter(pl.col("kind") == kind)
            .group_by("pid")
            .agg(pl.len().alias("n"), pl.col("tid").mode().min())
            .sort("n", "pid", descending=[True, False])
        )
        if counts.height:
            found = [
                _describe(
                    own.filter(pl.col("pid") == pid),
                    workers.filter(pl.col("pid") == pid),
                    crew.filter(pl.col("pid") == pid),
                    (pid, tid, ranks.get(pid)),
                    step_kind,
                )
                for pid, tid in counts.select("pid", "tid").iter_rows()
            ]
            return sorted(found, key=lambda each: (each.rank is None, each.rank or 0))
    return []


def _describe(
    mine: pl.DataFrame,
    workers: pl.DataFrame,
    crew: pl.DataFrame,
    who: tuple[int, int, int | None],
    step_kind: Literal["train", "batch"],
) -> Trainer:
    pid, tid, rank = who
    batches = mine.filter(pl.col("kind") == Kind.WAIT)
    reader = tid if tid in batches["tid"] or not batches.height else batches["tid"].mode().min()
    sources = _training_sources(mine) if step_kind == "train" else _busiest_source(batches)
    started = workers.filter(pl.col("source_id").is_in(sources))
    return Trainer(
        pid=pid,
        tid=tid,
        step_kind=step_kind,
        train_sources=tuple(sources),
        worker_pids=tuple(started["worker_pid"].unique().sort().to_list()),
        workers=started["worker"].n_unique(),
        reader_tid=int(reader),  # type: ignore[arg-type]
        rank=rank,
        crew_tids=() if started.height else _crew_of(crew, sources),
    )


def _crew_of(crew: pl.DataFrame, sources: list[int]) -> tuple[int, ...]:
    """Threads that prepare batches: those that were seen in fetches, if any were.

    Others then only hand them on, as all threads do where processes prepare them.
    """
    members = crew.filter(pl.col("source_id").is_in(sources))
    makers = members.filter("fetches")
    return tuple((makers if makers.height else members)["member"].unique().sort().to_list())


def _training_sources(mine: pl.DataFrame) -> list[int]:
    """Ids of the sources whose batches are followed by learning.

    | kind     | source_id |      | stretch | source_id |
    | WAIT     | 1         |      | 0       | 1         |  the last before learning: training
    | BACKWARD |           |  ->  | 1       | 2         |
    | WAIT     | 2         |      | 1       | 2         |  validation
    | WAIT     | 2         |      | 1       | 1         |  training
    | WAIT     | 1         |
    | BACKWARD |           |

    A source that comes to its end before the learning was validated with: frameworks evaluate
    between taking a batch and learning from it. Only if nothing else feeds the steps it does, as
    when all batches of an epoch make one step. Most jobs have one source, and no doubt about it.
    """
    only = mine.filter(pl.col("kind") == Kind.WAIT)["source_id"].unique()
    if only.len() == 1:
        return only.to_list()
    batches = _in_stretches(mine)
    lasting = batches.filter(~pl.col("is_over"))
    found = _feeders(lasting, batches) or _feeders(batches, batches)
    return sorted({*found, *_companions(lasting, found)})


def _in_stretches(mine: pl.DataFrame) -> pl.DataFrame:
    """Batches by the stretch between two learning events.

    source_id, stretch, is_fed, is_over, has_grad.
    """
    learns = pl.col("kind").is_in([Kind.BACKWARD, Kind.STEP])
    flags = pl.col("flags").cast(pl.Int64)
    taken = (
        mine.filter((pl.col("kind") == Kind.WAIT) | learns)
        .sort("start_ns")
        .with_row_index("row")
        .with_columns(stretch=learns.cum_sum(), stretches=learns.sum())
        .filter(pl.col("kind") == Kind.WAIT)
        .with_columns(
            has_ended=flags & int(Flag.END) != 0, has_grad=flags & int(Flag.TRAINING) != 0
        )
    )
    # Ends are rare: a join with them is cheaper than looking ahead from every batch.
    ends = (
        taken.filter("has_ended").group_by("stretch", "source_id").agg(end_row=pl.col("row").max())
    )
    return (
        taken.filter(~pl.col("has_ended"))
        .join(ends, on=["stretch", "source_id"], how="left", maintain_order="left")
        .select(
            "source_id",
            "stretch",
            "has_grad",
            is_fed=pl.col("stretch") < pl.col("stretches"),
            is_over=(pl.col("row") < pl.col("end_row")).fill_null(value=False),
        )
    )


def _feeders(candidates: pl.DataFrame, batches: pl.DataFrame) -> list[int]:
    """Sources that mostly give the last batch before learning, taken with gradients if any was."""
    last = (
        candidates.filter(pl.col("has_grad") | ~pl.col("has_grad").any().over("stretch"))
        .group_by("stretch", maintain_order=True)
        .last()
        .filter("is_fed")
        .group_by("source_id")
        .agg(pl.len().alias("fed"))
    )
    return list(
        batches.group_by("source_id")
        .agg(pl.col("stretch").n_unique().alias("seen"))
        .join(last, on="source_id")
        .filter(pl.col("fed") >= _TRAINED_SHARE * pl.col("seen"))["source_id"]
    )


def _companions(candidates: pl.DataFrame, feeders: list[int]) -> list[int]:
    """Sources that give a batch to nearly every step beside the last one: two that are zipped."""
    fed = candidates.filter(pl.col("source_id").is_in(feeders) & pl.col("is_fed"))[
        "stretch"
    ].unique()
    beside = (
        candidates.filter(pl.col("has_grad") & pl.col("stretch").is_in(fed.implode()))
        .group_by("source_id")
        .agg(pl.col("stretch").n_unique().alias("n"))
    )
    return list(beside.filter(pl.col("n") >= _COMPANION_SHARE * len(fed))["source_id"])


def _busiest_source(batches: pl.DataFrame) -> list[int]:
    """Without an optimizer: every source that delivers a fair share of the batches is the work."""
    counts = batches.group_by("source_id").len().sort("len", descending=True)
    most = counts["len"][0]
    return list(counts.filter(pl.col("len") >= _FAIR_SHARE * most)["source_id"].sort())
