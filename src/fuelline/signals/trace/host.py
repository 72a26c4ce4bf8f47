"""What the host did, as sets of time a cause, read part by part; and which call launched what.

Only threads that launch device work are asked, because a watchdog that polls does not hold up the
device; data loading and the profiler's own work count on any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.trace import HostKind
from fuelline.signals.trace.names import CAUSES, find_cause
from fuelline.timeline.intervals import covered_ns, merge, merge_all, nothing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.timeline.trace import Trace

_ANYWHERE = ("profiler", "data loader")
_LAUNCHES = r"LaunchKernel|GraphLaunch|LaunchCooperative"
"""Calls that put a kernel on the device; a memset of nothing leaves no event, and is no loss."""


@dataclass(frozen=True)
class Host:
    """One rank's host side."""

    launches: pl.DataFrame
    """| correlation | call_ns | thread | is_graph |: calls that put work on the device, and when
    they returned."""
    sets: Mapping[str, pl.DataFrame]
    """Cause to the set of moments at which the host did that."""
    threads: tuple[int, ...]
    start_ns: int | None
    end_ns: int | None
    calls: int
    """Launching calls; those without a device event are what the trace lost."""
    lost_calls: int
    queued_calls: int
    """Of those, the ones after the last that has an event: perhaps still in the device's queue."""
    graph_launches: int
    """Launches of graphs, whether kernels were recorded for them or not."""
    events: int


def read_host(trace: Trace, rank: int, correlations: pl.Series) -> Host:
    """Read a rank's host events twice: for the launches, then for what its threads did."""
    texts = trace.texts(rank)
    launch_names = _matching(texts, _LAUNCHES)
    graph_names = _matching(texts, "GraphLaunch")
    launches, calls, queued, graphs, events = [_no_launches()], 0, 0, 0, 0
    last = pl.lit(correlations.max(), pl.Int64)
    bounds: list[int] = []
    for part in trace.parts("host", rank):
        events += part.height
        runtime = part.filter(pl.col("kind") == int(HostKind.RUNTIME))
        launching = runtime.filter(pl.col("name").is_in(launch_names))
        calls += launching.height
        queued += launching.filter(pl.col("correlation") > last).height
        graphs += runtime.filter(pl.col("name").is_in(graph_names)).height
        launches.append(_launches(runtime, correlations))
        bounds += [part["start_ns"].min(), part["end_ns"].max()]  # type: ignore[list-item]
    found = pl.concat(launches).unique("correlation", keep="first", maintain_order=True)
    threads = tuple(found["thread"].unique().sort().to_list())
    named = found.filter(pl.col("name").is_in(launch_names))
    return Host(
        launches=found.with_columns(pl.col("name").is_in(graph_names).alias("is_graph")).drop(
            "name"
        ),
        sets=_read_sets(trace, rank, texts, threads),
        threads=threads,
        start_ns=min(bounds, default=None),
        end_ns=max(bounds, default=None),
        calls=calls,
        lost_calls=max(0, calls - named.height),
        queued_calls=queued,
        graph_launches=graphs,
        events=events,
    )


def _matching(texts: Mapping[int, str], words: str) -> list[int]:
    names = pl.Series(values=list(texts.values()), dtype=pl.String)
    numbers = pl.Series(values=list(texts), dtype=pl.UInt32)
    found: list[int] = numbers.filter(names.str.contains(words)).to_list()
    return found


def _no_launches() -> pl.DataFrame:
    columns = {"correlation": pl.Int64, "call_ns": pl.Int64, "thread": pl.Int64, "name": pl.UInt32}
    return pl.DataFrame(schema=columns)


def _launches(runtime: pl.DataFrame, correlations: pl.Series) -> pl.DataFrame:
    return runtime.filter(pl.col("correlation").is_in(correlations.implode())).select(
        "correlation", pl.col("end_ns").alias("call_ns"), "thread", "name"
    )


def _read_sets(
    trace: Trace, rank: int, texts: Mapping[int, str], threads: tuple[int, ...]
) -> dict[str, pl.DataFrame]:
    collected: dict[str, list[pl.DataFrame]] = {cause: [] for cause in CAUSES}
    causes = {name: cause for name, text in texts.items() if (cause := find_cause(text))}
    for part in trace.parts("host", rank):
        for key, same in (
            _with_cause(part, causes, threads)
            .partition_by("cause", as_dict=True, include_key=False)
            .items()
        ):
            collected[str(key[0])].append(merge(same))
    return {cause: merge_all(sets) if sets else nothing() for cause, sets in collected.items()}


def _with_cause(
    part: pl.DataFrame, causes: Mapping[int, str], threads: tuple[int, ...]
) -> pl.DataFrame:
    """Events that say what the host did, on threads that matter."""
    kind = pl.col("kind")
    by_name = pl.col("name").replace_strict(causes, default=None, return_dtype=pl.String)
    cause = (
        pl.when(kind == int(HostKind.PROFILER))
        .then(pl.lit("profiler"))
        .when(by_name.is_not_null())
        .then(by_name)
        .when(kind == int(HostKind.OP))
        .then(pl.lit("operators"))
        .when(kind == int(HostKind.RUNTIME))
        .then(pl.lit("kernel launches"))
        .when(kind == int(HostKind.PYTHON))
        .then(pl.lit("python"))
    )
    matters = pl.col("cause").is_in(_ANYWHERE)
    if threads:
        matters |= pl.col("thread").is_in(list(threads))
    else:
        matters |= pl.lit(True)  # noqa: FBT003 - nobody is known to launch: everybody may
    return part.with_columns(cause.alias("cause")).filter(pl.col("cause").is_not_null() & matters)


def find_during(
    trace: Trace, rank: int, host: Host, pieces: Mapping[str, pl.DataFrame]
) -> dict[str, str]:
    """For each cause the host event that most of its idle time lay under.

    A long event that encloses everything explains nothing: coverage counts by how much of the
    event itself was idle time.
    """
    texts = trace.texts(rank)
    causes = {name: cause for name, text in texts.items() if (cause := find_cause(text))}
    sums = []
    for part in trace.parts("host", rank):
        for key, same in (
            _with_cause(part, causes, host.threads)
            .partition_by("cause", as_dict=True, include_key=False)
            .items()
        ):
            idle = pieces.get(str(key[0]))
            if idle is not None and idle.height:
                sums.append(_weights(same, idle).with_columns(cause=pl.lit(str(key[0]))))
    if not sums:
        return {}
    top = (
        pl.concat(sums)
        .group_by("cause", "name")
        .agg(pl.col("weight").sum())
        .sort("weight", descending=True)
        .unique("cause", keep="first", maintain_order=True)
        .filter(pl.col("weight") > 0)
    )
    return {cause: texts[name] for cause, name in top.select("cause", "name").iter_rows()}


def _weights(events: pl.DataFrame, idle: pl.DataFrame) -> pl.DataFrame:
    covered = covered_ns(events, idle)
    took = (events["end_ns"] - events["start_ns"]).clip(1)
    weight = (covered.cast(pl.Float64) ** 2 / took).alias("weight")
    return (
        events.select("name")
        .with_columns(weight)
        .group_by("name")
        .agg(pl.col("weight").sum())
        .sort("name")
    )
