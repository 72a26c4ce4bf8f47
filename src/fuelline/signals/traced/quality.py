"""Trace quality: what the tables show to be missing, and the conclusions that it forbids.

An under-recorded trace looks idle and is not. So this is asked before any ledger is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.trace import Quality
from fuelline.schema.units import duration, number, percent
from fuelline.signals.traced.kernels.names import COMMUNICATION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.parts import IdleCause
    from fuelline.schema.run.trace import GapCause, TraceFacts
    from fuelline.signals.traced.collectives import TracedCollectives
    from fuelline.signals.traced.host import HostActivity
    from fuelline.signals.traced.kernels.lane import DeviceLane
    from fuelline.signals.traced.steps import TracedSteps

_DROPPED_SHARE = 0.02
"""Launches without a device event: a few lie at the edges of every trace."""
_UNBELIEVABLE_SHARE = 0.2
"""With this many lost, idle time is as likely to be lost kernels."""
_EMPTY_GRAPHS = 0.1
_NEAR_END = 0.02
"""Of the host's span: device events that reach into it were recorded to the end."""
_COVERED = 0.5
"""Of the host's span: with less, most of what was recorded lies outside of what is judged."""
_HOLES = 0.05
"""Kernels of a graph follow each other within microseconds; so much between them is a loss."""
BLINDING = ("no-device", "graphs", "lost", "unrecorded")
"""Codes after which nobody may call a device idle."""


def judge_quality(
    facts: TraceFacts,
    lanes: Sequence[DeviceLane],
    hosts: Mapping[int, HostActivity],
    matched: TracedCollectives,
    *,
    steps: TracedSteps,
    gaps: Sequence[GapCause],
) -> list[Quality]:
    """Everything that is wrong, what the files themselves said first."""
    found = list(facts.quality)
    for lane in lanes:
        found += _of_rank(lane, hosts[lane.rank])
        found += _of_cover(lane, hosts[lane.rank], steps)
    found += [_holes(gap) for gap in gaps if gap.cause in _LOSSES and gap.share >= _HOLES]
    return [
        *_together(found),
        *_of_ranks(facts, lanes, matched),
        *_of_clocks(matched),
        *_of_steps(steps, lanes),
    ]


def _of_rank(lane: DeviceLane, host: HostActivity) -> list[Quality]:
    found: list[Quality] = []
    ranks = [lane.rank]
    if not lane.devices:
        why = (
            f"no kernel was recorded, although the host launched {number(host.calls)}"
            if host.calls
            else "no device activity was recorded, and no call that would have caused any"
            if host.events
            else "no device activity was recorded"
        )
        found.append(
            Quality(code="no-device", problem=why, forbids="anything about the device", ranks=ranks)
        )
        return found
    lost = (host.lost_calls - _still_queued(lane, host)) / host.calls if host.calls else 0.0
    if lost >= _DROPPED_SHARE:
        found.append(_dropped(lost, ranks))
    empty = _empty_graphs(lane, host)
    if empty is not None and empty >= _EMPTY_GRAPHS:
        found.append(
            Quality(
                code="graphs",
                problem=f"{percent(empty)} of the launches of graphs have no kernels: what graphs "
                "ran was not recorded",
                forbids="calling the device idle, and totals of kernels",
                ranks=ranks,
            )
        )
    if not host.events:
        found.append(
            Quality(
                code="no-host",
                problem="nothing was recorded of the host",
                forbids="why the device was idle",
                ranks=ranks,
            )
        )
    if host.has_stacks or lane.facts.settings.get("with_stack") == "1":
        found.append(
            Quality(
                code="stacks",
                problem="Python stacks were recorded, which slows the host down",
                forbids="taking launch-bound time at face value",
                ranks=ranks,
            )
        )
    return found


def _of_cover(lane: DeviceLane, host: HostActivity, steps: TracedSteps) -> list[Quality]:
    """What the device's events leave out of the time that the host was recorded."""
    if not lane.devices or not host.events or host.start_ns is None or host.end_ns is None:
        return []
    if not host.launched:
        return [
            Quality(
                code="no-launches",
                problem="no call was recorded that launched what the device did",
                forbids="certainty about idle time: what ended it may have been queued long before",
                ranks=[lane.rank],
            )
        ]
    first_ns, last_ns = int(lane.events["start_ns"].min()), int(lane.events["end_ns"].max())  # type: ignore[arg-type]
    whole_ns = max(host.end_ns, last_ns) - min(host.start_ns, first_ns)
    if steps.marked_ns is not None or last_ns - first_ns >= _COVERED * whole_ns:
        return []
    return [
        Quality(
            code="uncovered",
            problem=f"the device's events cover {duration((last_ns - first_ns) / 1e9)} of the "
            f"{duration(whole_ns / 1e9)} that the host was recorded, and no step is marked",
            forbids="calling the job healthy: what the host did before and after may be of a step",
            ranks=[lane.rank],
        )
    ]


def _still_queued(lane: DeviceLane, host: HostActivity) -> int:
    """Launches whose kernels came after the trace ended: the device was busy until then.

    If its events end long before the host's, they were dropped instead.
    """
    start_ns, end_ns = host.start_ns or 0, host.end_ns or 0  # known, since there are calls
    last_ns = int(lane.events["end_ns"].max())  # type: ignore[arg-type]
    near_ns = _NEAR_END * (end_ns - start_ns)
    return min(host.queued_calls, host.lost_calls) if last_ns >= end_ns - near_ns else 0


def _dropped(lost: float, ranks: list[int]) -> Quality:
    blinds = lost >= _UNBELIEVABLE_SHARE
    return Quality(
        code="lost" if blinds else "dropped",
        problem=f"{percent(lost)} of the launches have no event on the device: it was dropped",
        forbids="calling the device idle" if blinds else "exact idle time and kernel counts",
        ranks=ranks,
    )


_LOSSES: Mapping[IdleCause, tuple[str, str]] = {
    "inside a graph": (
        "graphs",
        "graphs ran and none of their kernels did: not all that graphs ran was recorded",
    ),
    "unrecorded work": (
        "unrecorded",
        (
            "the host waited for a device on which nothing was recorded, with the next kernel "
            "queued: what it worked on is not in the trace"
        ),
    ),
}
"""Causes of idleness that are none: their code, and what they are."""


def _holes(gap: GapCause) -> Quality:
    code, why = _LOSSES[gap.cause]
    return Quality(
        code=code,
        problem=f"for {percent(gap.share)} of the time {why}",
        forbids="calling the device idle, and totals of kernels",
        ranks=[gap.rank],
    )


def _empty_graphs(lane: DeviceLane, host: HostActivity) -> float | None:
    """Share of the launches of graphs that no kernel belongs to."""
    if not host.graph_launches:
        return None
    full = lane.events.filter(
        pl.col("correlation").is_in(host.launches.filter("is_graph")["correlation"].implode())
    )["correlation"].n_unique()
    return 1 - full / host.graph_launches


def _together(found: Sequence[Quality]) -> list[Quality]:
    """The same words about several ranks once."""
    merged: dict[tuple[str, str, str], list[int]] = {}
    for each in found:
        merged.setdefault((each.code, each.problem, each.forbids), []).extend(each.ranks)
    return [
        Quality(code=code, problem=problem, forbids=forbids, ranks=sorted(set(ranks)))
        for (code, problem, forbids), ranks in merged.items()
    ]


def _of_ranks(
    facts: TraceFacts, lanes: Sequence[DeviceLane], matched: TracedCollectives
) -> list[Quality]:
    worlds = [rank.world_size for rank in facts.ranks if rank.world_size]
    world = max(worlds, default=1)
    if len(facts.ranks) < world:
        one = len(facts.ranks) == 1
        return [
            Quality(
                code="one-rank" if one else "sampled",
                problem=f"{len(facts.ranks)} of {world} ranks are here",
                forbids="whether communication is transfer or waiting, and who is late"
                if one
                else "who is late among the missing ranks",
            )
        ]
    talks = any((lane.events["family"] == COMMUNICATION).any() for lane in lanes)
    if len(lanes) > 1 and talks and not matched.count:
        return [
            Quality(
                code="unmatched",
                problem="no collective could be matched across the ranks",
                forbids="who waits for whom",
            )
        ]
    return []


def _of_clocks(matched: TracedCollectives) -> list[Quality]:
    shifted = [clock for clock in matched.clocks if clock.shift_ns]
    if not shifted:
        return []
    most = max(abs(clock.shift_ns) for clock in shifted) / 1e6
    error = max(clock.error_ns or 0 for clock in shifted) / 1e6
    return [
        Quality(
            code="clocks",
            problem=f"clocks of the ranks disagreed by up to {most:.3f} ms; they were aligned at "
            f"collectives to {error:.3f} ms",
            forbids="lateness below that error",
            ranks=[clock.rank for clock in shifted],
        )
    ]


_ORIGINS = {
    "annotation": "an annotation that repeats",
    "periodicity": "what repeats on the device",
}


def _of_steps(steps: TracedSteps, lanes: Sequence[DeviceLane]) -> list[Quality]:
    if not any(lane.events.height for lane in lanes):
        return []
    if not steps.origin:
        return [
            Quality(
                code="no-steps",
                problem="no step is marked, and none could be inferred",
                forbids="per-step figures, and separating warm-up from the rest",
            )
        ]
    if steps.overlap:
        return [
            Quality(
                code="overlapping-steps",
                problem="steps overlap: one is marked before the previous one has ended",
                forbids="per-step figures: time within two steps is counted twice",
            )
        ]
    if steps.origin != "profiler":
        return [
            Quality(
                code="inferred-steps",
                problem=f"no step is marked; they were inferred from {_ORIGINS[steps.origin]}",
                forbids="exact step times",
            )
        ]
    return []
