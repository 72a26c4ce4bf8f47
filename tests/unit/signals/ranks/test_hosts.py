"""Hosts with clocks and pids of their own are put on one clock; collectives bound the error."""

import dataclasses

import msgspec
import polars as pl
import pytest

from fuelline.schema.readings import Missing
from fuelline.schema.run.recording import Excerpts
from fuelline.schema.wire import Collective, Kind
from fuelline.signals import HostView, align_hosts, compare_ranks, view_host
from tests.unit.builders import MS, Lane, make_timeline
from tests.unit.timeline.test_collectives import rank_facts

SECOND = 1000 * MS


def two_hosts(op: Collective = Collective.GRADIENTS) -> list[HostView]:
    """Two ranks with the same pid, one a host, on one clock; the second is 20 ms late each step."""
    lanes = [Lane(pid=100), Lane(pid=100)]
    for step in range(20):
        for late, lane in zip((0, 20), lanes, strict=True):
            lane.batch(1 + late).gap(5).backward(10)
        done_ns = max(lane.now_ns for lane in lanes) + MS
        for lane in lanes:
            lane.put(Kind.COLLECTIVE, lane.now_ns, done_ns - lane.now_ns, int(op), 8, 7, step, 2)
            lane.now_ns = done_ns
            lane.optimizer(2)
    facts = rank_facts(100, 100)["processes"]
    return [
        view_host(make_timeline(lane, facts={"processes": (each,)}))
        for lane, each in zip(lanes, facts, strict=True)  # type: ignore[call-overload]
    ]


def with_wrong_clock(host: HostView, ahead_ns: int, wall_error_ns: int = 0) -> HostView:
    run = msgspec.structs.replace(
        host.run,
        started_ns=host.run.started_ns + ahead_ns,
        started_wall_ns=host.run.started_wall_ns + wall_error_ns,
    )
    return dataclasses.replace(
        host,
        run=run,
        spans={rank: span.shifted(ahead_ns) for rank, span in host.spans.items()},
        arrivals=host.arrivals.with_columns(pl.col("^(open|arrive|done)_ns_.*$") + ahead_ns),
    )


@pytest.mark.parametrize("wall_error_s", [0, 0.4, -3])
def test_clocks_are_aligned_at_collectives_whatever_the_wall_clock_says(
    wall_error_s: float,
) -> None:
    first, second = two_hosts()
    other = with_wrong_clock(second, 77 * SECOND, int(wall_error_s * SECOND))
    offset = align_hosts([first, other])[1].offset
    assert offset.error_ns is not None
    # The first waits 20 ms for the second, which waits 1 ms: clocks may differ by half of both.
    assert abs(offset.shift_ns + 77 * SECOND) <= offset.error_ns <= 11 * MS


def test_the_late_rank_is_found_on_another_host_with_another_clock() -> None:
    first, second = two_hosts()
    aligned = align_hosts([first, with_wrong_clock(second, -5 * SECOND)])
    (culprit,) = compare_ranks(aligned).facts.culprits
    assert culprit.rank == 1


def test_a_broadcast_does_not_bound_a_clock_and_the_wall_clocks_are_all_there_is() -> None:
    first, second = two_hosts(op=Collective.BROADCAST)
    offset = align_hosts([first, with_wrong_clock(second, 7 * SECOND)])[1].offset
    assert (offset.shift_ns, offset.error_ns) == (-7 * SECOND, None)


def test_clocks_that_drift_are_as_far_off_as_they_drifted() -> None:
    first, second = two_hosts()
    drift = pl.col("number").cast(pl.Int64) * 5 * MS
    drifting = second.arrivals.with_columns(pl.col("^(open|arrive|done)_ns_.*$") + drift)
    offset = align_hosts([first, dataclasses.replace(second, arrivals=drifting)])[1].offset
    assert offset.error_ns == pytest.approx(95 * MS, rel=0.3)


def test_excerpts_of_another_rhythm_have_no_collectives_in_common() -> None:
    first, second = two_hosts()
    kept = Excerpts(first_ns=0, period_ns=8 * SECOND, kept_ns=SECOND, records=10**7)
    other = dataclasses.replace(second, excerpts=kept)
    offset = align_hosts([first, other])[1].offset
    assert (offset.shift_ns, offset.error_ns) == (0, None)


def test_a_host_without_collectives_has_its_wall_clock_alone() -> None:
    first, _ = two_hosts()
    silent = view_host(make_timeline(Lane().step().step()))
    offset = align_hosts([first, with_wrong_clock(silent, 3 * SECOND)])[1].offset
    assert (offset.shift_ns, offset.error_ns) == (-3 * SECOND, None)


def test_waits_for_cores_are_those_of_the_busiest_thread_in_each_ranks_window() -> None:
    lane = Lane().step().step().step()
    start_ns, end_ns = lane.now_ns - 90 * MS, lane.now_ns
    clocks = [
        (at_ns, lane.pid, tid, 0, queued_ns)
        for tid, waited in ((100, 10 * MS), (101, 35 * MS))
        for at_ns, queued_ns in ((start_ns, MS), (end_ns, MS + waited))
    ]
    host = [
        (at_ns, f"net.tcp.{name}", value)
        for name, values in (("sent_segments", (100.0, 300.0)), ("retransmits", (0.0, 8.0)))
        for at_ns, value in zip((start_ns, end_ns), values, strict=True)
    ]
    view = view_host(
        make_timeline(lane, facts=rank_facts(lane.pid), clocks=clocks, host=host)  # type: ignore[arg-type]
    )
    assert view.core_waits == (pytest.approx(35 / 90),)
    assert view.segments == (200, 8)


def test_ranks_that_trained_at_different_times_are_not_compared() -> None:
    first, second = two_hosts()
    later = {rank: span.shifted(1000 * SECOND) for rank, span in second.spans.items()}
    facts = compare_ranks([first, dataclasses.replace(second, spans=later)]).facts
    assert facts.ranks == 2
    assert isinstance(facts.wait_share, Missing)
