"""The first look at a trace: ranks classified, matched at collectives, each device accounted for.

What is measured, compared and drawn afterwards all rests on the same accounts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuelline.signals.trace.host import read_host
from fuelline.signals.trace.lane import read_lane
from fuelline.signals.trace.ledger import keep_account
from fuelline.signals.trace.meetings import find_communicating, match_meetings
from fuelline.signals.trace.steps import find_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from fuelline.signals.trace.host import Host
    from fuelline.signals.trace.lane import Lane
    from fuelline.signals.trace.ledger import Account
    from fuelline.signals.trace.meetings import Meetings
    from fuelline.signals.trace.steps import Steps
    from fuelline.timeline.trace import Trace


@dataclass(frozen=True)
class Survey:
    """All ranks of a trace."""

    trace: Trace
    lanes: list[Lane]
    hosts: Mapping[int, Host]
    meetings: Meetings
    steps: Mapping[int, Steps]
    """By rank."""
    accounts: list[Account]
    """One a device, by rank and device."""

    def lane_of(self, account: Account) -> Lane:
        """The rank that a device belongs to."""
        return next(lane for lane in self.lanes if lane.rank == account.ledger.rank)


def survey_trace(trace: Trace) -> Survey:
    """Read all ranks, one host at a time."""
    lanes = [read_lane(trace, facts) for facts in trace.facts.ranks]
    busy = [lane for lane in lanes if lane.events.height]
    talking = find_communicating(busy) if len(busy) > 1 else set()
    lanes = [lane.with_communicating(talking) for lane in lanes]
    meetings = match_meetings([lane for lane in lanes if lane.events.height])
    hosts = {lane.rank: read_host(trace, lane.rank, correlations(lane)) for lane in lanes}
    lanes = [
        lane.with_graphs(hosts[lane.rank].launches).with_blocks(hosts[lane.rank].launches)
        for lane in lanes
    ]
    steps = {lane.rank: find_steps(trace, lane) for lane in lanes}
    accounts = [
        keep_account(lane, device, hosts[lane.rank], meetings, steps[lane.rank].boundaries_ns)
        for lane in lanes
        for device in lane.devices
    ]
    settled = {rank: host.settled() for rank, host in hosts.items()}
    return Survey(trace, lanes, settled, meetings, steps, accounts)


def correlations(lane: Lane) -> pl.Series:
    """Of a rank's device events."""
    return lane.events["correlation"].drop_nulls().unique()
