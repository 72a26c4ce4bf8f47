"""Collectives of several ranks are matched by group, kind and number; arrivals say who waited."""

from fuelline.schema.run.recording import ProcessFacts
from fuelline.schema.wire import Collective, Flag, Kind, MarkPlace
from fuelline.timeline.collectives import find_arrivals, match_collectives
from fuelline.timeline.device_marks import cut_by_device
from fuelline.timeline.timeline import Timeline
from fuelline.timeline.trainer import find_trainers
from tests.unit.builders import MS, START_NS, Lane, judge, make_timeline, spent_ms

ALL_REDUCE, BROADCAST = int(Collective.ALL_REDUCE), int(Collective.BROADCAST)


def rank_facts(*pids: int, backend: str = "gloo") -> dict[str, object]:
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
            backend=backend,
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


def queue(lane: Lane, at_ms: float, arrives_ms: float, done_ms: float, number: int = 0) -> Lane:
    """The host queues a collective, and goes on; its device comes to it later. Two clocks."""
    marks = (
        (0.0, arrives_ms, MarkPlace.COLLECTIVE_BEGIN),
        (0.1, done_ms, MarkPlace.COLLECTIVE_END),
    )
    meet(lane, at_ms + 0.01, at_ms + 0.09, number)
    for later_ms, passed_ms, place in marks:
        start_ns = START_NS + int((at_ms + later_ms) * MS)
        passed_ns = START_NS + int(passed_ms * MS)
        lane.put(
            Kind.MARK, start_ns, passed_ns - start_ns, 0, passed_ns - 10**12 * lane.pid, 1, 0, place
        )
    return lane


def test_where_calls_only_queue_work_the_devices_clocks_say_who_waits() -> None:
    """Both hosts come by at the same moment; the second device is 40 ms later than the first."""
    first, second = stepping(10), stepping(20)
    for number, at_ms in enumerate((100, 200, 300)):
        for lane, late_ms in ((first, 0), (second, 40)):
            if not number:  # once the queue is empty, which sets the clocks
                queue(lane, at_ms - 50, at_ms - 50, at_ms - 49, 90)
            queue(lane, at_ms, at_ms + 30 + late_ms, at_ms + 75, number)
    timeline = make_timeline(first, second, facts=rank_facts(10, 20, backend="nccl"))
    waits = waits_ms(timeline)
    assert abs(waits[0] - 120) < 1
    assert waits[1] < 1


def test_without_their_clocks_nothing_is_said_of_who_waits() -> None:
    lanes = meet(stepping(10), 100, 160), meet(stepping(20), 150, 160)
    timeline = make_timeline(*lanes, facts=rank_facts(10, 20, backend="nccl"))
    assert waits_ms(timeline) == {}


def test_a_second_backend_for_the_host_waits_itself() -> None:
    lanes = meet(stepping(10), 100, 160), meet(stepping(20), 150, 160)
    timeline = make_timeline(*lanes, facts=rank_facts(10, 20, backend="cpu:gloo,cuda:nccl"))
    assert waits_ms(timeline) == {0: 50, 1: 0}


def test_what_a_device_is_late_by_is_read_from_its_own_time() -> None:
    """The host queues backward in 1 ms and goes on; its device takes 30 ms for it."""
    lane = Lane(10)
    free_ns = lane.now_ns

    def mark(place: MarkPlace, device_ms: float = 0) -> None:
        nonlocal free_ns
        free_ns = max(free_ns, lane.now_ns) + int(device_ms * MS)
        lane.put(Kind.MARK, lane.now_ns, free_ns - lane.now_ns, 0, free_ns, 1, 0, place)

    for _ in range(6):
        lane.batch(1)
        mark(MarkPlace.WAIT_END)
        lane.gap(1)
        mark(MarkPlace.BACKWARD_BEGIN, 10)
        lane.backward(1)
        mark(MarkPlace.COLLECTIVE_BEGIN, 30)
        meet(lane, (lane.now_ns - START_NS) / MS, (lane.now_ns - START_NS) / MS + 0.1)
        mark(MarkPlace.COLLECTIVE_END, 5)
        mark(MarkPlace.BACKWARD_END)
        lane.gap(0.2).optimizer(0).gap(0.1)
        mark(MarkPlace.STEP_END, 2)
        lane.now_ns = free_ns  # as a blocking copy waits
    timeline = make_timeline(lane, facts=rank_facts(10, backend="nccl"))
    trainer, segments = judge(timeline)
    spent = spent_ms(cut_by_device(timeline, trainer, segments))
    assert spent["backward"] == 5 * 30
    assert spent["collectives"] == 5 * 5
