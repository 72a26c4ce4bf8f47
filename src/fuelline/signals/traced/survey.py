"""The first look at a trace: ranks classified, matched at collectives, each device accounted for.

What is measured, compared and drawn afterwards all rests on the same accounts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.signals.traced.collectives import find_apart, find_communicating, match_collectives
from fuelline.signals.traced.gaps import Beside, find_gaps
from fuelline.signals.traced.host import read_host
from fuelline.signals.traced.idleness import find_inputs, is_mostly_own, tell_own_work
from fuelline.signals.traced.kernels.lane import read_lane
from fuelline.signals.traced.ledger import keep_account
from fuelline.signals.traced.steps import find_steps
from fuelline.signals.traced.window import find_window
from fuelline.timeline.intervals import merge

if TYPE_CHECKING:
    from fuelline.signals.traced.collectives import TracedCollectives
    from fuelline.signals.traced.gaps import Gaps
    from fuelline.signals.traced.host import HostActivity
    from fuelline.signals.traced.kernels.lane import DeviceLane
    from fuelline.signals.traced.ledger import Account
    from fuelline.signals.traced.steps import TracedSteps
    from fuelline.timeline.trace import Trace


@dataclass(frozen=True)
class Survey:
    """All ranks of a trace."""

    trace: Trace
    lanes: list[DeviceLane]
    hosts: dict[int, HostActivity]
    matched: TracedCollectives
    steps: dict[int, TracedSteps]
    """By rank."""
    accounts: list[Account]
    """One a device, by rank and device."""

    def lane_of(self, account: Account) -> DeviceLane:
        """The rank that a device belongs to."""
        return next(lane for lane in self.lanes if lane.rank == account.ledger.rank)


def survey_trace(trace: Trace) -> Survey:
    """Read all ranks, one host at a time."""
    lanes = [read_lane(trace, facts) for facts in trace.facts.ranks]
    busy = [lane for lane in lanes if lane.events.height]
    talking = find_communicating(busy) if len(busy) > 1 else set()
    lanes = [lane.with_communicating(talking | find_apart(lane)) for lane in lanes]
    matched = match_collectives([lane for lane in lanes if lane.events.height])
    survey = Survey(trace, [], {}, matched, {}, [])
    for lane in lanes:
        _account_for(lane, survey)
    if not is_mostly_own(survey.accounts):
        survey.accounts[:] = [account.usual() for account in survey.accounts]
    return survey


def _account_for(lane: DeviceLane, survey: Survey) -> None:
    """One rank; its host, which is as large as its devices, is let go of as soon as it can be."""
    host = read_host(survey.trace, lane.rank, correlations(lane))
    lane = lane.with_graphs(host.launches).with_blocks(host.launches)
    steps = find_steps(survey.trace, lane, host.launches)
    inputs = find_inputs(survey.trace, lane.rank)
    windows: dict[int, tuple[int, int]] = {}
    gaps: dict[int, Gaps] = {}
    for device in lane.devices:
        events = lane.of(device)
        windows[device] = find_window(survey.trace, lane.rank, steps, events, host)
        beside = Beside(host, steps, _others(lane, device))
        gaps[device] = tell_own_work(
            find_gaps(events, beside, windows[device]),
            inputs,
            is_marked=steps.marked_ns is not None,
            has_stacks=host.has_stacks,
        )
    survey.hosts[lane.rank] = host.settled()
    del host
    survey.steps[lane.rank] = steps
    survey.lanes.append(lane)
    survey.accounts.extend(
        keep_account(lane, device, idle, survey.matched, windows[device])
        for device, idle in gaps.items()
    )


def _others(lane: DeviceLane, device: int) -> pl.DataFrame:
    """The set of moments at which other devices of a rank did something."""
    return merge(lane.events.filter(pl.col("device") != device))


def correlations(lane: DeviceLane) -> pl.Series:
    """Of a rank's device events, in order."""
    found: pl.Series = lane.events["correlation"].drop_nulls().unique().sort()
    return found
