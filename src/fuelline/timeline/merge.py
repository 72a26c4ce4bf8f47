"""Several hosts on one clock: pids kept apart, times shifted, events together.

Each host has its own clock and its own pids. Wall clocks give a first guess of how clocks differ;
collectives give a bound: nobody leaves one before everybody has arrived. Tables that speak of one
machine (its counters, its other processes) stay with their host; see `Timeline.table("host")`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.wire import Collective, Kind
from fuelline.timeline.meetings import KEY, match_meetings
from fuelline.timeline.trainer import find_trainers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.timeline.timeline import Timeline

PIDS_A_HOST = 1 << 22
"""The largest pid that Linux gives; a host's number times this is added to its pids."""

_MOMENTS = {"start_ns", "window_ns", "at_ns", "from_ns", "until_ns"}
_PIDS = {"pid", "tid", "ppid"}
_SHARED = ("events", "clocks")
"""Tables that are looked at for all hosts together."""
_MEETING_ALL = {
    int(op)
    for op in (
        Collective.ALL_REDUCE,
        Collective.ALL_GATHER,
        Collective.REDUCE_SCATTER,
        Collective.ALL_TO_ALL,
        Collective.BARRIER,
        Collective.GRADIENTS,
    )
}
"""Nobody leaves these before everybody has come; the sender of a broadcast may."""


@dataclass(frozen=True)
class Offset:
    """What to add to a host's clock, and how far off that may be; None if nothing bounds it."""

    shift_ns: int
    error_ns: int | None


def keep_apart(timeline: Timeline, host: int) -> Timeline:
    """The same with pids that no other host has."""
    added = host * PIDS_A_HOST
    if not added:
        return timeline
    tables = {
        name: frame.with_columns(
            pl.col(column) + added for column in frame.columns if column in _PIDS
        )
        for name, frame in timeline.tables.items()
    }
    events = tables.get("events")
    if events is not None:
        tables["events"] = _move_workers(events, added)
    return dataclasses.replace(
        timeline,
        tables=tables,
        processes=tuple(
            msgspec.structs.replace(each, pid=each.pid + added, ppid=each.ppid + added)
            for each in timeline.processes
        ),
        loaders=tuple(
            msgspec.structs.replace(each, pid=each.pid + added) for each in timeline.loaders
        ),
    )


def _move_workers(events: pl.DataFrame, added: int) -> pl.DataFrame:
    return events.with_columns(
        pl.when(pl.col("kind") == Kind.WORKER).then(pl.col("c") + added).otherwise("c").alias("c")
    )


def align(timelines: Sequence[Timeline]) -> list[Offset]:
    """How each host's clock must be shifted to agree with the first one's."""
    first = timelines[0]
    return [Offset(0, 0), *(_offset(first, other) for other in timelines[1:])]


def _offset(first: Timeline, other: Timeline) -> Offset:
    guess_ns = _wall_offset(other) - _wall_offset(first)
    moved = shift(other, guess_ns)
    both = _join_events([first, moved])
    meetings = match_meetings(both, find_trainers(both)).filter(pl.col("op").is_in(_MEETING_ALL))
    ours = {each.rank for each in find_trainers(first)}
    sides = meetings.group_by(*KEY).agg(
        pl.col("arrive_ns").filter(pl.col("rank").is_in(ours)).max().alias("arrive"),
        pl.col("done_ns").filter(pl.col("rank").is_in(ours)).min().alias("done"),
        pl.col("arrive_ns").filter(~pl.col("rank").is_in(ours)).max().alias("other_arrive"),
        pl.col("done_ns").filter(~pl.col("rank").is_in(ours)).min().alias("other_done"),
    )
    bounds = sides.drop_nulls().select(
        low=pl.col("arrive") - pl.col("other_done"), high=pl.col("done") - pl.col("other_arrive")
    )
    if not bounds.height:
        return Offset(guess_ns, None)
    return _within(guess_ns, bounds)


def _within(guess_ns: int, bounds: pl.DataFrame) -> Offset:
    """The middle of what all meetings allow; clocks that drift may allow nothing in common."""
    low, high = int(bounds["low"].max()), int(bounds["high"].min())  # type: ignore[arg-type]
    if low <= high:
        return Offset(guess_ns + (low + high) // 2, (high - low + 1) // 2)
    middles = (bounds["low"] + bounds["high"]) / 2
    spread = float(middles.max() - middles.min())
    return Offset(guess_ns + int(middles.median()), int(spread))


def _wall_offset(timeline: Timeline) -> int:
    return timeline.run.started_wall_ns - timeline.run.started_ns


def shift(timeline: Timeline, shift_ns: int) -> Timeline:
    """The same with every moment moved."""
    run = timeline.run
    ended_ns = None if run.ended_ns is None else run.ended_ns + shift_ns
    return dataclasses.replace(
        timeline,
        run=msgspec.structs.replace(run, started_ns=run.started_ns + shift_ns, ended_ns=ended_ns),
        tables={
            name: frame.with_columns(
                pl.col(column) + shift_ns for column in frame.columns if column in _MOMENTS
            )
            for name, frame in timeline.tables.items()
        },
    )


def merge(timelines: Sequence[Timeline]) -> Timeline:
    """What is looked at for all hosts together, as one; the rest is the first host's."""
    if len(timelines) == 1:
        return timelines[0]
    joined = _join_events(timelines)
    hosts = [
        each.table("host").with_columns(name=pl.lit(f"ns.host{number}.") + pl.col("name"))
        for number, each in enumerate(timelines)
    ]
    return dataclasses.replace(
        joined,
        tables={**joined.tables, "host": pl.concat(hosts)},
        blindspots=tuple(
            dict.fromkeys(spot for timeline in timelines for spot in timeline.blindspots)
        ),
    )


def _join_events(timelines: Sequence[Timeline]) -> Timeline:
    tables = {name: pl.concat([each.table(name) for each in timelines]) for name in _SHARED}
    return dataclasses.replace(
        timelines[0],
        tables=tables,
        processes=tuple(facts for each in timelines for facts in each.processes),
        loaders=tuple(facts for each in timelines for facts in each.loaders),
    )
