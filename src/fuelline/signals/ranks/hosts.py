"""What is kept of one host's recording to compare ranks: small, so that many hosts fit in memory.

The recording itself is read again only for the ranks that turn out to matter.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.signals.recorded.counters import growth
from fuelline.timeline.clocks import Offset, find_offset
from fuelline.timeline.collectives import MOMENTS, find_arrivals
from fuelline.timeline.segments import find_span
from fuelline.timeline.trainer import find_trainers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.run.recording import Blindspot, Excerpts, ProcessFacts, RunFacts
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import Span
    from fuelline.timeline.trainer import Trainer


_MOMENTS = f"^({'|'.join(MOMENTS)})_.*$"
HERE = Offset(0, 0)
"""The clock that all others are compared with."""


@dataclass(frozen=True, kw_only=True)
class HostView:
    """One host of a run, on a clock that may have been shifted."""

    run: RunFacts
    processes: tuple[ProcessFacts, ...]
    blindspots: tuple[Blindspot, ...]
    trainers: tuple[Trainer, ...]
    spans: Mapping[int, Span]
    """By rank, for ranks that stepped."""
    arrivals: pl.DataFrame
    segments: tuple[float, float]
    """TCP segments that were sent, and sent again, while its first rank trained."""
    core_waits: tuple[float, ...]
    """Of each rank's window: its busiest thread waited for a core."""
    offset: Offset = HERE
    excerpts: Excerpts | None = None
    """What its tables hold of the run; None if all of it."""


def view_host(timeline: Timeline) -> HostView:
    """Everything about one host that comparing ranks needs."""
    trainers = find_trainers(timeline)
    spans = {
        each.rank: span
        for each in trainers
        if each.rank is not None and (span := find_span(timeline, each)) is not None
    }
    return HostView(
        run=timeline.run,
        processes=timeline.processes,
        blindspots=timeline.blindspots,
        trainers=tuple(trainers),
        spans=spans,
        arrivals=find_arrivals(timeline, trainers),
        segments=_segments(timeline, next(iter(spans.values()), None)),
        core_waits=tuple(_core_waits(timeline, spans)),
        excerpts=timeline.excerpts,
    )


def count_ranks_beside(hosts: Sequence[HostView], trainer: Trainer) -> int:
    """Training processes on the trainer's machine, itself included.

    A launcher that starts a recorder for each task leaves several views of one machine.
    """
    machine = next((host.run.host for host in hosts if trainer in host.trainers), None)
    if machine is None:  # a job without steps has no ranks
        return 1
    return max(1, sum(len(host.spans) for host in hosts if host.run.host == machine))


def align_hosts(views: Sequence[HostView]) -> list[HostView]:
    """All views on the clock of the first."""
    first = views[0]
    return [first, *(_moved(first, view) for view in views[1:])]


def _moved(first: HostView, view: HostView) -> HostView:
    if _rhythm(view) != _rhythm(first):  # moments of the one are mostly not in the other
        view = dataclasses.replace(view, arrivals=view.arrivals.clear())
    guess_ns = _wall_offset(view) - _wall_offset(first)
    offset = find_offset(first.arrivals, view.arrivals, guess_ns)
    shift_ns = offset.shift_ns
    return dataclasses.replace(
        view,
        spans={rank: span.shifted(shift_ns) for rank, span in view.spans.items()},
        arrivals=view.arrivals.with_columns(pl.col(_MOMENTS) + shift_ns),
        offset=offset,
    )


def _rhythm(view: HostView) -> tuple[int, int] | None:
    excerpts = view.excerpts
    return None if excerpts is None else (excerpts.period_ns, excerpts.kept_ns)


def _wall_offset(view: HostView) -> int:
    return view.run.started_wall_ns - view.run.started_ns


def _segments(timeline: Timeline, span: Span | None) -> tuple[float, float]:
    """From the ranks' own network namespaces, if they have any, else from the host's counters."""
    if span is None:
        return 0.0, 0.0
    names = timeline.table("host")["name"].unique().to_list()
    own = [name for name in names if name.startswith("ns.") and name.endswith(".sent_segments")]
    sent = again = 0.0
    for name in own or ["net.tcp.sent_segments"]:
        sent += growth(timeline, span, name) or 0.0
        again += growth(timeline, span, name.replace("sent_segments", "retransmits")) or 0.0
    return sent, again


def _core_waits(timeline: Timeline, spans: Mapping[int, Span]) -> list[float]:
    """Gloo moves data in threads of its own, so the trainer thread alone is not enough."""
    shares = []
    for span in spans.values():
        queued = (
            timeline.table("clocks")
            .filter(
                (pl.col("pid") == span.pid) & pl.col("at_ns").is_between(span.start_ns, span.end_ns)
            )
            .group_by("tid")
            .agg(pl.col("runq_ns").max() - pl.col("runq_ns").min())["runq_ns"]
        )
        if queued.len():
            queued_ns = float(queued.max()) * timeline.kept_frac  # type: ignore[arg-type]
            shares.append(queued_ns / span.wall_ns)
    return shares
