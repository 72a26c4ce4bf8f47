"""Who trains: the process, the thread, its loaders and their workers. Pure lookups, no time yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from fuelline.schema.wire import Flag, Kind
from fuelline.timeline.events import learning_events, worker_starts

if TYPE_CHECKING:
    from fuelline.timeline.timeline import Timeline

_TRAINED_SHARE = 0.1
"""A loader is a training loader if at least this share of the stretches between two learning events
that have batches of it end with one: an epoch of a validation loader mostly does not."""
_COMPANION_SHARE = 0.5
"""Of the stretches that feed a step: a loader with a batch in so many feeds the steps as well."""
_FAIR_SHARE = 0.1
"""Without an optimizer: of the batches of the busiest loader."""


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """The process and thread that the steps belong to."""

    pid: int
    tid: int
    step_kind: Literal["train", "batch"]
    """batch: no optimizer was seen, so a step is a batch."""
    train_loaders: tuple[int, ...]
    """Ids of the loaders that feed steps; the others are validation."""
    worker_pids: tuple[int, ...]
    """Workers of the training loaders, over the whole run."""
    workers: int
    """How many of them there are at a time."""
    reader_tid: int
    """The thread that takes batches; differs from `tid` if the job prefetches in a thread."""
    rank: int | None = None
    """Of a distributed job."""


def find_trainers(timeline: Timeline) -> list[Trainer]:
    """Every process that ran optimizer steps, else that took batches; by rank, then by steps."""
    workers = worker_starts(timeline)
    in_workers = pl.col("pid").is_in(workers["worker_pid"].unique().implode())
    own = learning_events(timeline, ~in_workers)
    ranks = {facts.pid: facts.rank for facts in timeline.processes}
    kinds: tuple[tuple[Kind, Literal["train", "batch"]], ...] = (
        (Kind.OPTIMIZER, "train"),
        (Kind.NEXT, "batch"),
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
    who: tuple[int, int, int | None],
    step_kind: Literal["train", "batch"],
) -> Trainer:
    pid, tid, rank = who
    batches = mine.filter(pl.col("kind") == Kind.NEXT)
    reader = tid if tid in batches["tid"] or not batches.height else batches["tid"].mode().min()
    loaders = _training_loaders(mine) if step_kind == "train" else _busiest_loader(batches)
    started = workers.filter(pl.col("loader_id").is_in(loaders))
    return Trainer(
        pid=pid,
        tid=tid,
        step_kind=step_kind,
        train_loaders=tuple(loaders),
        worker_pids=tuple(started["worker_pid"].unique().sort().to_list()),
        workers=started["worker"].n_unique(),
        reader_tid=int(reader),  # type: ignore[arg-type]
        rank=rank,
    )


def _training_loaders(mine: pl.DataFrame) -> list[int]:
    """Ids of the loaders whose batches are followed by learning.

    | kind     | source |      | stretch | source |
    | NEXT     | 1      |      | 0       | 1      |  the last before learning: training
    | BACKWARD |        |  ->  | 1       | 2      |
    | NEXT     | 2      |      | 1       | 2      |  validation
    | NEXT     | 2      |      | 1       | 1      |  training
    | NEXT     | 1      |
    | BACKWARD |        |

    A loader that comes to its end before the learning was validated with: frameworks evaluate
    between taking a batch and learning from it. Only if nothing else feeds the steps it does, as
    when all batches of an epoch make one step. Most jobs have one loader, and no doubt about it.
    """
    only = mine.filter(pl.col("kind") == Kind.NEXT)["source"].unique()
    if only.len() == 1:
        return only.to_list()
    batches = _in_stretches(mine)
    lasting = batches.filter(~pl.col("is_over"))
    found = _feeders(lasting, batches) or _feeders(batches, batches)
    return sorted({*found, *_companions(lasting, found)})


def _in_stretches(mine: pl.DataFrame) -> pl.DataFrame:
    """Batches by the stretch between two learning events.

    source, stretch, is_fed, is_over, has_grad.
    """
    learns = pl.col("kind").is_in([Kind.BACKWARD, Kind.OPTIMIZER])
    flags = pl.col("flags").cast(pl.Int64)
    taken = (
        mine.filter((pl.col("kind") == Kind.NEXT) | learns)
        .sort("start_ns")
        .with_row_index("row")
        .with_columns(stretch=learns.cum_sum(), stretches=learns.sum())
        .filter(pl.col("kind") == Kind.NEXT)
        .with_columns(has_ended=flags & int(Flag.END) != 0, has_grad=flags & int(Flag.GRAD) != 0)
    )
    # Ends are rare: a join with them is cheaper than looking ahead from every batch.
    ends = taken.filter("has_ended").group_by("stretch", "source").agg(end_row=pl.col("row").max())
    return (
        taken.filter(~pl.col("has_ended"))
        .join(ends, on=["stretch", "source"], how="left", maintain_order="left")
        .select(
            "source",
            "stretch",
            "has_grad",
            is_fed=pl.col("stretch") < pl.col("stretches"),
            is_over=(pl.col("row") < pl.col("end_row")).fill_null(value=False),
        )
    )


def _feeders(candidates: pl.DataFrame, batches: pl.DataFrame) -> list[int]:
    """Loaders that mostly give the last batch before learning, taken with gradients if any was."""
    last = (
        candidates.filter(pl.col("has_grad") | ~pl.col("has_grad").any().over("stretch"))
        .group_by("stretch", maintain_order=True)
        .last()
        .filter("is_fed")
        .group_by("source")
        .agg(pl.len().alias("fed"))
    )
    return list(
        batches.group_by("source")
        .agg(pl.col("stretch").n_unique().alias("seen"))
        .join(last, on="source")
        .filter(pl.col("fed") >= _TRAINED_SHARE * pl.col("seen"))["source"]
    )


def _companions(candidates: pl.DataFrame, feeders: list[int]) -> list[int]:
    """Loaders that give a batch to nearly every step beside the last one: two that are zipped."""
    fed = candidates.filter(pl.col("source").is_in(feeders) & pl.col("is_fed"))["stretch"].unique()
    beside = (
        candidates.filter(pl.col("has_grad") & pl.col("stretch").is_in(fed.implode()))
        .group_by("source")
        .agg(pl.col("stretch").n_unique().alias("n"))
    )
    return list(beside.filter(pl.col("n") >= _COMPANION_SHARE * len(fed))["source"])


def _busiest_loader(batches: pl.DataFrame) -> list[int]:
    """Without an optimizer: every loader that delivers a fair share of the batches is the work."""
    counts = batches.group_by("source").len().sort("len", descending=True)
    most = counts["len"][0]
    return list(counts.filter(pl.col("len") >= _FAIR_SHARE * most)["source"].sort())
