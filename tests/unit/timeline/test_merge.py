"""Hosts with clocks and pids of their own become one timeline; collectives bound the clocks."""

import dataclasses

import msgspec
import polars as pl
import pytest

from fuelline.schema.wire import Collective, Kind
from fuelline.timeline.merge import align, keep_apart, merge, shift
from fuelline.timeline.timeline import Timeline
from fuelline.timeline.trainer import find_trainers
from tests.unit.builders import MS, Lane, make_timeline
from tests.unit.timeline.test_meetings import rank_facts

SECOND = 1000 * MS


def two_hosts(delay_ms: float = 20, op: Collective = Collective.GRADIENTS) -> list[Timeline]:
    """Two ranks, one a host, on one clock; the second is late by `delay_ms` in each step."""
    lanes = [Lane(pid=100), Lane(pid=100)]
    for step in range(20):
        for late, lane in zip((0, delay_ms), lanes, strict=True):
            lane.batch(1 + late).gap(5).backward(10)
        done_ns = max(lane.now_ns for lane in lanes) + MS
        for lane in lanes:
            lane.put(Kind.COLLECTIVE, lane.now_ns, done_ns - lane.now_ns, int(op), 8, 7, step, 2)
            lane.now_ns = done_ns
            lane.optimizer(2)
    facts = rank_facts(100, 100)["processes"]
    return [
        keep_apart(make_timeline(lane, facts={"processes": (each,)}), number)
        for number, (lane, each) in enumerate(zip(lanes, facts, strict=True))  # type: ignore[call-overload]
    ]


def with_wrong_clock(timeline: Timeline, ahead_ns: int, wall_error_ns: int = 0) -> Timeline:
    moved = shift(timeline, ahead_ns)
    wall_ns = moved.run.started_wall_ns + wall_error_ns
    return dataclasses.replace(
        moved, run=msgspec.structs.replace(moved.run, started_wall_ns=wall_ns)
    )


def test_ranks_with_the_same_pid_on_two_hosts_are_two() -> None:
    found = find_trainers(merge(two_hosts()))
    assert [each.rank for each in found] == [0, 1]
    assert found[0].pid != found[1].pid


@pytest.mark.parametrize("wall_error_s", [0, 0.4, -3])
def test_clocks_are_aligned_at_collectives_whatever_the_wall_clock_says(
    wall_error_s: float,
) -> None:
    first, second = two_hosts()
    other = with_wrong_clock(second, 77 * SECOND, int(wall_error_s * SECOND))
    offset = align([first, other])[1]
    assert offset.error_ns is not None
    # All wait at most 1 ms together, so the clocks cannot be told apart better than that.
    assert abs(offset.shift_ns + 77 * SECOND) <= offset.error_ns <= 12 * MS


def test_a_broadcast_does_not_bound_a_clock() -> None:
    first, second = two_hosts(op=Collective.BROADCAST)
    assert align([first, second])[1].error_ns is None


def test_one_host_is_left_as_it_is() -> None:
    first, _ = two_hosts()
    assert merge([first]) is first
    assert align([first])[0].shift_ns == 0


def test_events_of_all_hosts_are_together_and_host_counters_are_told_apart() -> None:
    first, second = two_hosts()
    tables = {
        **second.tables,
        "host": pl.DataFrame(
            [(1, "net.tcp.retransmits", 5.0)], schema=first.table("host").schema, orient="row"
        ),
    }
    merged = merge([first, dataclasses.replace(second, tables=tables)])
    assert merged.table("events").height == 2 * first.table("events").height
    assert merged.table("host")["name"].to_list() == ["ns.host1.net.tcp.retransmits"]
