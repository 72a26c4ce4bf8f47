"""Idle gaps of a device, each moment with its cause: what the host did meanwhile.

Idle under the data loader is waiting for data. Otherwise the call that launched the event at a
gap's end splits the gap. Until the call returns the host is to blame, for whatever it did. Then the
launch takes as long as launches do. If the call returned before the gap began, the host was ahead
and the device waited for something of its own. If the host then waited for the device, what it
waited for was not recorded.

What is paid once is start-up: capturing a graph, compiling, a long call that launches a kernel for
the first time. Where steps are not marked, that is also what operators and the allocator do before.
So is memory that is allocated or freed for long once or twice in a trace that would show a habit;
and whatever else a host does for long once or twice where no mark says that it is of a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.parts import HOST_CAUSES, LEDGER_PARTS, HostCause, IdleCause, LedgerPart
from fuelline.schema.run.trace import DeviceKind
from fuelline.signals.traced.host import LONG_CALL_NS
from fuelline.timeline.intervals import (
    SPAN,
    intersect,
    merge,
    merge_all,
    nothing,
    partition,
    span_of,
    subtract,
)

if TYPE_CHECKING:
    from fuelline.signals.traced.host import HostActivity
    from fuelline.signals.traced.steps import TracedSteps

_LONG_AGO = -(2**62)
_LATENCY_NS = 20_000
"""From a launching call to the start of its kernel on an idle device takes 5 to 20 us."""
_LOADER: HostCause = "data loader"
_HOST = "host"
_AHEAD: IdleCause = "dependency on the device"
_BLOCKING: tuple[HostCause, ...] = ("synchronise", "memcpy")
"""What a host does while it waits for its device."""
_PAID_ONCE: tuple[HostCause, ...] = ("allocator", "operators", "kernel launches")
"""What may take long for a kernel's first launch."""
_HAPPENS: tuple[IdleCause, ...] = (
    *("synchronise", "memcpy", "garbage collection", "kernel launches", "operators", "python"),
    "python between steps",
)
"""What is no pattern either if it took long once."""
PART_OF_CAUSE: dict[IdleCause, LedgerPart] = {
    "profiler": "profiler overhead",
    "start-up": "start-up",
    "one-off": "start-up",
    "data loader": "data wait",
    "synchronise": "synchronisation",
    "memcpy": "copies",
    "allocator": "allocation",
    "garbage collection": "launch-bound",
    "kernel launches": "launch-bound",
    "operators": "launch-bound",
    "python": "launch-bound",
    "python between steps": "launch-bound",
    "launch latency": "launch-bound",
    "dependency on the device": "unknown",
    "unrecorded work": "unknown",
    "inside a graph": "unknown",
    "not recorded": "unknown",
}
"""The ledger part of each cause of idleness, unless the host worked (`idleness.py`)."""
CAUSE = pl.Enum(list(PART_OF_CAUSE))
"""A byte instead of sixteen: there are millions of pieces."""
PART = pl.Enum(LEDGER_PARTS)
_USUAL_PART = pl.col("cause").cast(pl.String).replace_strict(PART_OF_CAUSE, return_dtype=PART)
_RECURS = 3
"""Gaps that are a habit."""
_ALIKE = 4
"""Gaps are alike if none is this many times as long as another."""
_GAPS = 65_536
"""Gaps that are explained at a time, so that what it takes stays small beside the trace."""


@dataclass(frozen=True)
class Gaps:
    """Idle time of a device: | start_ns | end_ns | cause | part |, in order, every moment once."""

    pieces: pl.DataFrame
    gaps: pl.DataFrame
    """The whole gaps, as a set."""

    def usual(self) -> Gaps:
        """The same with no work of the host's own told apart."""
        return Gaps(self.pieces.with_columns(_USUAL_PART.alias("part")), self.gaps)

    def of(self, cause: IdleCause) -> pl.DataFrame:
        """The set of moments with one cause."""
        return merge(self.pieces.filter(pl.col("cause") == cause))


@dataclass(frozen=True)
class Beside:
    """What the idle time of one device is looked at beside."""

    host: HostActivity
    steps: TracedSteps
    others: pl.DataFrame
    """The set of moments at which another device of this rank did something."""


def find_gaps(events: pl.DataFrame, beside: Beside, window_ns: tuple[int, int]) -> Gaps:
    """Split a device's idle time by cause, from its first event to its last and in a window."""
    whole = span_of(pl.concat([events.select(SPAN), as_set(*window_ns)]))
    gaps = subtract(whole, merge(events))
    fresh = _fresh(gaps, events)
    found = [nothing().with_columns(cause=pl.lit(None, CAUSE))]
    found += [_explain(part, events, beside, fresh) for part in gaps.iter_slices(_GAPS)]
    pieces = pl.concat(found)
    is_marked = beside.steps.marked_ns is not None
    pieces = _tell_one_off(pieces, gaps, ("allocator",), "start-up")
    if not is_marked:
        pieces = _tell_one_off(pieces, gaps, _HAPPENS, "one-off")
    return Gaps(pieces.with_columns(_USUAL_PART.alias("part")), gaps)


def _tell_one_off(
    pieces: pl.DataFrame, gaps: pl.DataFrame, causes: tuple[IdleCause, ...], told: IdleCause
) -> pl.DataFrame:
    """Long stretches under these causes that nearly nothing like them follows."""
    is_one = pieces["cause"].is_in(causes)
    if not is_one.any():
        return pieces
    place = gaps["start_ns"].search_sorted(pieces["start_ns"], side="right")
    spent = pieces.select((pl.col("end_ns") - pl.col("start_ns")).alias("ns"), place.alias("gap"))
    sums = spent.filter(is_one).group_by("gap").agg(pl.col("ns").sum())
    least_ns = max(LONG_CALL_NS, int(sums["ns"].max()) // _ALIKE)  # type: ignore[arg-type]
    long = sums.filter(pl.col("ns") >= least_ns)["gap"]
    if not 0 < long.len() < _RECURS:
        return pieces
    once = is_one & place.is_in(long.implode())
    cause = pl.when(once).then(pl.lit(told, CAUSE)).otherwise("cause")
    return pieces.with_columns(cause.alias("cause"))


def as_set(start_ns: int, end_ns: int) -> pl.DataFrame:
    """The set of one interval."""
    return pl.DataFrame({"start_ns": [start_ns], "end_ns": [end_ns]}, schema=nothing().schema)


def _fresh(gaps: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Long gaps that end in a kernel or in clearing memory, the first event of its name."""
    first = events.select("start_ns", "kind").filter(events["text"].is_first_distinct())
    begun = first.filter(pl.col("kind") != int(DeviceKind.COPY))["start_ns"]
    return _long(gaps).filter(pl.col("end_ns").is_in(begun.implode()))


def _long(intervals: pl.DataFrame) -> pl.DataFrame:
    """Those in which something else was done than launching."""
    return intervals.filter(pl.col("end_ns") - pl.col("start_ns") >= LONG_CALL_NS)


def _explain(
    gaps: pl.DataFrame, events: pl.DataFrame, beside: Beside, fresh: pl.DataFrame
) -> pl.DataFrame:
    """Pieces of some of the gaps, in order."""
    host = beside.host
    loading = intersect(gaps, host.sets[_LOADER])
    phases = _phases(gaps, events, host)
    pieces = [loading.with_columns(cause=pl.lit(_LOADER))]
    for key, same in phases.partition_by("phase", as_dict=True).items():
        rest = subtract(merge(same), loading)
        if key[0] == _HOST:
            compiling = merge_all([host.compiled, intersect(host.regions, fresh)])
            compiled = intersect(_long(gaps), intersect(rest, compiling))
            pieces.append(compiled.with_columns(cause=pl.lit("start-up")))
            rest = subtract(rest, compiled)
            blamed = _blame_host(rest, gaps, host, beside.steps.boundaries_ns)
            pieces.append(_paid_once(blamed, fresh, is_marked=beside.steps.marked_ns is not None))
        elif key[0] == _AHEAD:
            pieces += _look_behind(rest, beside)
        else:
            pieces.append(rest.with_columns(cause=pl.lit(str(key[0]))))
    return pl.concat(pieces).sort("start_ns").with_columns(pl.col("cause").cast(CAUSE))


def _look_behind(ahead: pl.DataFrame, beside: Beside) -> list[pl.DataFrame]:
    """Time in which the next kernel was queued already: did the host wait for this device?"""
    waits = merge_all(beside.host.sets[cause] for cause in _BLOCKING)
    lost = subtract(intersect(ahead, waits), beside.others)
    return [
        lost.with_columns(cause=pl.lit("unrecorded work")),
        subtract(ahead, lost).with_columns(cause=pl.lit(_AHEAD)),
    ]


def _paid_once(pieces: pl.DataFrame, fresh: pl.DataFrame, *, is_marked: bool) -> pl.DataFrame:
    """What a kernel's first launch took is no pattern; in a marked step, only its own call."""
    if not fresh.height:
        return pieces
    begun = fresh["start_ns"].search_sorted(pieces["start_ns"], side="right")
    ended = fresh["end_ns"].search_sorted(pieces["start_ns"], side="right")
    once = (begun > ended) & pieces["cause"].is_in(_PAID_ONCE)
    if is_marked:
        lasts = pieces["end_ns"] - pieces["start_ns"] >= LONG_CALL_NS
        once &= lasts & (pieces["cause"] == "kernel launches")
    cause = pl.when(once).then(pl.lit("start-up")).otherwise("cause")
    return pieces.with_columns(cause.alias("cause"))


def _phases(gaps: pl.DataFrame, events: pl.DataFrame, host: HostActivity) -> pl.DataFrame:
    """| start_ns | end_ns | phase |: host, launch latency, dependency on the device."""
    starts = events["start_ns"]
    first = int(starts.search_sorted(gaps["end_ns"][0], side="left"))
    last = int(starts.search_sorted(gaps["end_ns"][-1], side="right"))
    ending = events.slice(first, last - first).select("start_ns", "correlation")
    launched = _find_calls(ending, host.launches).select(
        pl.col("start_ns").alias("end_ns"), "call_ns", "is_graph"
    )
    known = gaps.join(launched, on="end_ns", how="left", maintain_order="left").with_columns(
        pl.col("call_ns").fill_null(pl.col("end_ns"))
    )
    call = pl.min_horizontal(pl.max_horizontal("call_ns", "start_ns"), "end_ns")
    settled = pl.min_horizontal(call + _LATENCY_NS, "end_ns")
    cut = known.with_columns(call.alias("call_ns"), settled.alias("settled_ns"))
    from_graph = pl.col("is_graph").fill_null(value=False)
    return pl.concat(
        [
            _phase(cut, "start_ns", "call_ns", _HOST),
            _phase(cut, "call_ns", "settled_ns", "launch latency"),
            _phase(cut.filter(~from_graph), "settled_ns", "end_ns", "dependency on the device"),
            _phase(cut.filter(from_graph), "settled_ns", "end_ns", "inside a graph"),
        ]
    )


def _find_calls(events: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """The call that launched each event, of several that start together the first one's."""
    is_first = (events["start_ns"] != events["start_ns"].shift(1)).fill_null(value=True)
    events = events.filter(is_first)
    wanted = events["correlation"].drop_nulls()
    near = launches.filter(pl.col("correlation").is_between(wanted.min(), wanted.max()))
    # Numbers grow with time: what has a lower one than all calls was launched before the recording.
    is_older = pl.col("correlation") < pl.lit(launches["correlation"].min(), pl.Int64)
    call = pl.when(pl.col("call_ns").is_null() & is_older).then(_LONG_AGO).otherwise("call_ns")
    found = events.join(near, on="correlation", how="left", maintain_order="left")
    return found.with_columns(call.alias("call_ns"))


def _phase(cut: pl.DataFrame, start: str, end: str, phase: str) -> pl.DataFrame:
    return cut.select(
        pl.col(start).alias("start_ns"), pl.col(end).alias("end_ns"), pl.lit(phase).alias("phase")
    ).filter(pl.col("end_ns") > pl.col("start_ns"))


def _blame_host(
    hosts_time: pl.DataFrame, gaps: pl.DataFrame, host: HostActivity, boundaries_ns: pl.Series
) -> pl.DataFrame:
    """What the host did in the time that is its fault."""
    recorded = pl.DataFrame(
        {"start_ns": [host.start_ns or 0], "end_ns": [host.end_ns or 0]},
        schema={"start_ns": pl.Int64, "end_ns": pl.Int64},
    )
    layers = [host.sets[cause] for cause in HOST_CAUSES]
    found = partition(intersect(hosts_time, merge(recorded)), layers)
    names = pl.col("layer").replace_strict(
        dict(enumerate(HOST_CAUSES)), default=None, return_dtype=pl.String
    )
    # Nothing recorded on the launching threads, while they live: code that no one traced.
    named = found.with_columns(names.fill_null("python").alias("cause"))
    unseen = subtract(hosts_time, recorded).with_columns(cause=pl.lit("not recorded"))
    return pl.concat([_between_steps(named, gaps, boundaries_ns), unseen])


def _between_steps(
    pieces: pl.DataFrame, gaps: pl.DataFrame, boundaries_ns: pl.Series
) -> pl.DataFrame:
    """Python in a gap that a step ends in is Python between steps."""
    place = boundaries_ns.search_sorted(gaps["start_ns"], side="right")
    until = boundaries_ns.search_sorted(gaps["end_ns"], side="right")
    crossing = gaps.filter(until > place) if boundaries_ns.len() else gaps.clear()
    if not crossing.height:
        return pieces.select(*SPAN, "cause")
    at = pieces.sort("start_ns").join_asof(
        crossing.select(pl.col("start_ns").alias("gap_ns"), pl.col("end_ns").alias("until_ns")),
        left_on="start_ns",
        right_on="gap_ns",
        strategy="backward",
    )
    inside = (pl.col("start_ns") < pl.col("until_ns")) & (pl.col("cause") == "python")
    return at.select(
        *SPAN,
        pl.when(inside.fill_null(value=False))
        .then(pl.lit("python between steps"))
        .otherwise("cause")
        .alias("cause"),
    )
