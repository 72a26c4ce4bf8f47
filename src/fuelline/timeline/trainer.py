"""Who trains: the process, the thread, its loaders and their workers. Pure lookups, no time yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from fuelline.schema.wire import Flag, Kind

if TYPE_CHECKING:
    from fuelline.timeline.timeline import Timeline

_TRAINED_SHARE = 0.1
"""A loader is a training loader if at least this share of its batches is followed by a backward or
optimizer step before the next batch: gradient accumulation over ten batches still counts."""


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
    events = timeline.table("events")
    workers = events.filter(pl.col("kind") == Kind.WORKER)["c"].unique()
    own = events.filter(~pl.col("pid").is_in(workers.implode()))
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
                _describe(own, pid, tid, step_kind, ranks.get(pid))
                for pid, tid in counts.select("pid", "tid").iter_rows()
            ]
            return sorted(found, key=lambda each: (each.rank is None, each.rank or 0))
    return []


def _describe(
    events: pl.DataFrame,
    pid: int,
    tid: int,
    step_kind: Literal["train", "batch"],
    rank: int | None,
) -> Trainer:
    mine = events.filter(pl.col("pid") == pid)
    batches = mine.filter(pl.col("kind") == Kind.NEXT)
    reader = tid if tid in batches["tid"] or not batches.height else batches["tid"].mode().min()
    loaders = _training_loaders(mine) if step_kind == "train" else _busiest_loader(batches)
    workers = mine.filter((pl.col("kind") == Kind.WORKER) & pl.col("a").is_in(loaders))
    return Trainer(
        pid=pid,
        tid=tid,
        step_kind=step_kind,
        train_loaders=tuple(loaders),
        worker_pids=tuple(workers["c"].unique().sort().to_list()),
        workers=workers["b"].n_unique(),
        reader_tid=int(reader),  # type: ignore[arg-type]
        rank=rank,
    )


def _training_loaders(mine: pl.DataFrame) -> list[int]:
    """Ids of the loaders whose batches are followed by learning.

    | kind | a |      | loader | followed |
    | NEXT | 1 |      | 1      | 1.0      |  training
    | BACKWARD | | -> | 2      | 0.0      |  validation
    | NEXT | 2 |
    | NEXT | 2 |
    """
    learns = pl.col("kind").is_in([Kind.BACKWARD, Kind.OPTIMIZER])
    ended = pl.col("flags").cast(pl.Int64) & int(Flag.END) != 0
    followed = (
        mine.filter(((pl.col("kind") == Kind.NEXT) & ~ended) | learns)
        .sort("start_ns")
        .with_columns(followed=learns.shift(-1).fill_null(value=False))
        .filter(pl.col("kind") == Kind.NEXT)
        .group_by("a")
        .agg(pl.col("followed").mean())
    )
    return list(followed.filter(pl.col("followed") >= _TRAINED_SHARE)["a"].sort())


def _busiest_loader(batches: pl.DataFrame) -> list[int]:
    """Without an optimizer: every loader that delivers a fair share of the batches is the work."""
    counts = batches.group_by("a").len().sort("len", descending=True)
    if not counts.height:
        return []
    most = counts["len"][0]
    return list(counts.filter(pl.col("len") >= _TRAINED_SHARE * most)["a"].sort())
