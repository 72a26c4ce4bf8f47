"""Collectives of several ranks are matched by group, kind and number; arrivals say who waited."""

from fuelline.schema.run.recording import ProcessFacts
from fuelline.schema.wire import Collective, Flag, Kind
from fuelline.timeline.collectives import find_arrivals, match_collectives
from fuelline.timeline.timeline import Timeline
from fuelline.timeline.trainer import find_trainers
from tests.unit.builders import MS, START_NS, Lane, make_timeline

ALL_REDUCE, BROADCAST = int(Collective.ALL_REDUCE), int(Collective.BROADCAST)


def rank_facts(*pids: int) -> dict[str, object]:
    processes = tuple(
        ProcessFacts(
            pid=pid,
            ppid=1,
            created_ns=0,
            records=1,
            dropped=0,
            faults=0,
            rank=rank,
            ranks=len(pids),
        )
        for rank, pid in enumerate(pids)
    )
    return {"processes": processes}


def meet(lane: Lane, at_ms: float, until_ms: float, number: int = 0, op: int = ALL_REDUCE) -> Lane:
    """A collective of a given time, in group 7 of two."""
    start_ns = START_NS + int(at_ms * MS)
    dur_ns = int((until_ms - at_ms) * MS)
    return lane.put(Kind.COLLECTIVE, start_ns, dur_ns, op, 1000, 7, number, 2)


def two(first: Lane, second: Lane) -> Timeline:
    return make_timeline(first, second, facts=rank_facts(first.pid, second.pid))


def waits_ms(timeline: Timeline) -> dict[int, float]:
    met = match_collectives([find_arrivals(timeline, find_trainers(timeline))])
    if not met.frame.height:
        return {}
    sums = met.frame.select(each.sum() / MS for each in met.of("wait_ns")).row(0)
    return dict(zip(met.ranks, sums, strict=True))


def stepping(pid: int) -> Lane:
    return Lane(pid).step().step()


def test_a_rank_waits_from_its_own_arrival_to_the_last() -> None:
    timeline = two(meet(stepping(10), 100, 160), meet(stepping(20), 150, 160))
    assert waits_ms(timeline) == {0: 50, 1: 0}


def test_the_sender_of_a_broadcast_that_leaves_early_has_not_waited() -> None:
    first = meet(stepping(10), 100, 101, op=BROADCAST)
    assert waits_ms(two(first, meet(stepping(20), 150, 151, op=BROADCAST))) == {0: 1, 1: 0}


def test_collectives_of_other_numbers_kinds_or_failed_ones_do_not_match() -> None:
    first = meet(stepping(10), 100, 160, number=3)
    assert waits_ms(two(first, meet(stepping(20), 150, 160, number=4))) == {}
    first = meet(stepping(10), 100, 160)
    assert waits_ms(two(first, meet(stepping(20), 150, 160, op=BROADCAST))) == {}
    failed = stepping(20).put(
        Kind.COLLECTIVE, START_NS, MS, ALL_REDUCE, 1000, 7, 0, 2, flags=Flag.ERROR
    )
    assert waits_ms(two(first, failed)) == {}


def test_an_asynchronous_one_ends_when_it_was_waited_for() -> None:
    first = stepping(10)
    first.put(Kind.COLLECTIVE, START_NS, MS, ALL_REDUCE, 1000, 7, 0, 2, flags=Flag.ASYNC)
    first.put(Kind.COLLECTIVE_WAIT, START_NS + 10 * MS, 30 * MS, ALL_REDUCE, 1000, 7, 0, 2)
    timeline = two(first, meet(stepping(20), 35, 40))
    met = match_collectives([find_arrivals(timeline, find_trainers(timeline))])
    assert met.frame["done_ns_0"].item() == START_NS + 40 * MS
    assert waits_ms(timeline) == {0: 35, 1: 0}


def test_a_process_that_is_no_rank_takes_no_part() -> None:
    timeline = make_timeline(meet(stepping(10), 100, 160), meet(stepping(20), 150, 160))
    assert waits_ms(timeline) == {}


def test_a_rank_that_is_late_because_the_exchange_before_ended_later_for_it_is_not_waited_for() -> (
    None
):
    first, second = stepping(10), stepping(20)
    meet(first, 100, 101, op=BROADCAST)  # the sender is done at once
    meet(second, 100, 120, op=BROADCAST)
    meet(first, 131, 160)
    meet(second, 150, 160)
    assert waits_ms(two(first, second)) == {0: 0, 1: 0}


def test_a_rank_that_came_late_to_a_broadcast_is_still_waited_for_at_the_next_collective() -> None:
    first, second = stepping(10), stepping(20)
    meet(first, 100, 101, op=BROADCAST)
    meet(second, 140, 142, op=BROADCAST)
    meet(first, 131, 180)
    meet(second, 172, 180)
    assert waits_ms(two(first, second)) == {0: 1 + 41 - 2, 1: 0}


def test_collectives_that_overlap_inherit_nothing() -> None:
    first, second = stepping(10), stepping(20)
    meet(first, 100, 101, op=BROADCAST)
    meet(second, 100, 160, op=BROADCAST)  # waited for only after the next one was begun
    meet(first, 131, 170)
    meet(second, 150, 170)
    assert waits_ms(two(first, second)) == {0: 19, 1: 0}
