"""Who is late, what it costs, and in which part of its step; nobody, if ranks take turns."""

import random
from collections.abc import Callable

import msgspec
import pytest

from fuelline.schema.diagnosis.facts import SyncFacts
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.wire import Collective, Kind
from fuelline.signals import compare_ranks, find_reason, sum_parts, view_host
from fuelline.timeline.segments import cut_segments
from fuelline.timeline.timeline import Timeline
from tests.unit.builders import MS, Lane, judge, make_timeline
from tests.unit.timeline.test_collectives import rank_facts

PARTS = ("input", "forward", "backward", "optimizer", "checkpoint")
Delay = Callable[[int, int], dict[str, float]]
"""Step and rank to extra milliseconds by part."""


def story(
    delay: Delay, *, ranks: int = 2, steps: int = 60, exchange_ms: float = 1.0, size: int = 1000
) -> SyncFacts:
    """Ranks that train and meet after each backward, as under DDP."""
    lanes = [Lane(pid=100 + rank) for rank in range(ranks)]
    for step in range(steps):
        for rank, lane in enumerate(lanes):
            extra = dict.fromkeys(PARTS, 0.0) | delay(step, rank)
            lane.batch(1 + extra["input"]).gap(5 + extra["forward"])
            lane.backward(10 + extra["backward"])
        done_ns = max(lane.now_ns for lane in lanes) + int(exchange_ms * MS)
        for rank, lane in enumerate(lanes):
            extra = dict.fromkeys(PARTS, 0.0) | delay(step, rank)
            start_ns, lane.now_ns = lane.now_ns, done_ns
            fields = (int(Collective.GRADIENTS), size, 7, step, ranks)
            lane.put(Kind.COLLECTIVE, start_ns, done_ns - start_ns, *fields)
            lane.optimizer(2 + extra["optimizer"])
            if extra["checkpoint"]:
                lane.add(Kind.PAUSE, extra["checkpoint"])
    return judge_ranks(make_timeline(*lanes, facts=rank_facts(*(lane.pid for lane in lanes))))


def judge_ranks(timeline: Timeline) -> SyncFacts:
    """The comparison, with what each culprit did differently."""
    host = view_host(timeline)
    comparison = compare_ranks([host])
    segments_by_rank = {each.rank: cut_segments(timeline, each) for each in host.trainers}
    culprits = [
        find_reason(
            {
                rank: sum_parts(comparison, culprit, segments)
                for rank, segments in segments_by_rank.items()
            },  # type: ignore[arg-type]
            culprit,
        )
        for culprit in comparison.facts.culprits
    ]
    return msgspec.structs.replace(comparison.facts, culprits=culprits)


def value(signal: Reading | Missing) -> float:
    assert isinstance(signal, Reading)
    return signal.value


@pytest.mark.parametrize("part", ["input", "forward", "backward", "optimizer"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_is_always_slow_is_the_culprit_and_its_part_is_named(
    part: str, ranks: int
) -> None:
    found = story(lambda _, rank: {part: 20} if rank == 1 else {}, ranks=ranks)
    (culprit,) = found.culprits
    assert (culprit.rank, culprit.part) == (1, part)
    assert culprit.late_count == culprit.of
    assert culprit.excess_seconds == pytest.approx(0.02 * culprit.late_count, rel=0.05)
    assert value(found.straggler_share) == pytest.approx(20 / 39, rel=0.05)


def test_a_rank_that_checkpoints_now_and_then_is_late_because_of_that() -> None:
    found = story(lambda step, rank: {"checkpoint": 300} if rank == 0 and step % 6 == 5 else {})
    (culprit,) = found.culprits
    assert (culprit.rank, culprit.part) == (0, "checkpoint")


def test_ranks_that_take_turns_are_nobodys_fault() -> None:
    found = story(lambda step, rank: {"forward": 20} if step % 2 == rank else {})
    assert found.culprits == []
    assert value(found.wait_share) > 0.2


def test_random_jitter_is_nobodys_fault() -> None:
    rng = random.Random(3)
    draws = [[rng.expovariate(1 / 10) for _ in range(4)] for _ in range(200)]
    found = story(lambda step, rank: {"forward": draws[step][rank]}, ranks=4, steps=200)
    assert found.culprits == []


def test_ranks_that_arrive_together_wait_for_nothing() -> None:
    found = story(lambda *_: {})
    assert found.culprits == []
    assert value(found.wait_share) == 0
    assert value(found.exchange.share) == pytest.approx(1 / 19, rel=0.1)


def test_one_rank_alone_has_nobody_to_compare_with() -> None:
    found = story(lambda *_: {}, ranks=1)
    assert found.ranks == 1
    assert isinstance(found.wait_share, Missing)


def test_latency_and_bandwidth_come_from_exchanges_of_different_sizes() -> None:
    lanes = [Lane(pid=100), Lane(pid=101)]
    for step in range(60):
        size = (1_000, 100_000, 4_000_000)[step % 3]
        took_ns = 2 * MS + int(size / 50e6 * 1e9)  # 2 ms and 50 MB/s
        for lane in lanes:
            fields = (int(Collective.ALL_REDUCE), size, 7, step, 2)
            lane.batch(1).gap(5).backward(10)
            lane.put(Kind.COLLECTIVE, lane.now_ns, took_ns, *fields)
            lane.now_ns += took_ns
            lane.optimizer(2)
    found = judge_ranks(make_timeline(*lanes, facts=rank_facts(100, 101))).exchange
    assert value(found.bytes_per_s) == pytest.approx(50e6, rel=0.02)
    assert value(found.latency_seconds) == pytest.approx(0.002, rel=0.05)


def test_one_size_alone_does_not_tell_latency_from_bandwidth() -> None:
    found = story(lambda *_: {}, exchange_ms=10, size=1_000_000).exchange
    assert isinstance(found.latency_seconds, Missing)
    assert isinstance(found.bytes_per_s, Reading)
    assert found.bytes_per_s.high == pytest.approx(1e8, rel=0.02)  # all of it was seen
    assert found.bytes_per_s.low == pytest.approx(5e7, rel=0.02)  # or half of it was in backward


def overlapped(*sizes: int, hidden_ms: float, rate: float = 50e6) -> Signal:
    """DDP exchanges gradients of these sizes in turn; all of it but `hidden_ms` is seen."""
    lanes = [Lane(pid=100), Lane(pid=101)]
    for step in range(60):
        size = sizes[step % len(sizes)]
        took_ns = int(size / rate * 1e9) - int(hidden_ms * MS)
        for lane in lanes:
            fields = (int(Collective.GRADIENTS), size, 7, step, 2)
            lane.batch(1).gap(5).backward(20)
            lane.put(Kind.COLLECTIVE, lane.now_ns, took_ns, *fields)
            lane.now_ns += took_ns
            lane.optimizer(2)
    return judge_ranks(make_timeline(*lanes, facts=rank_facts(100, 101))).exchange.bytes_per_s


@pytest.mark.parametrize("hidden_ms", [0, 10, 19])
def test_the_rate_of_gradients_that_overlap_with_backward_lies_in_the_interval(
    hidden_ms: float,
) -> None:
    found = overlapped(4_000_000, hidden_ms=hidden_ms)
    assert isinstance(found, Reading)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 50e6 <= found.high * 1.001
    assert found.low < found.value < found.high


def test_a_late_rank_with_nothing_to_compare_it_by_has_no_reason() -> None:
    (culprit,) = story(lambda _, rank: {"input": 20} if rank == 1 else {}).culprits
    bare = msgspec.structs.replace(culprit, part="unexplained", excess_seconds=0.0)
    assert find_reason({1: {"input": 5.0}}, bare) == bare
    assert find_reason({0: {}, 1: {"collectives": 5.0}}, bare) == bare


def test_a_rank_that_never_waited_says_nothing_about_the_others() -> None:
    lanes = [Lane(pid=100), Lane(pid=101)]
    for step in range(20):
        for late, lane in zip((0, 20), lanes, strict=True):
            lane.batch(1 + late).gap(5).backward(10)
            start_ns = lane.now_ns
            lane.gap(21 - late).put(
                Kind.COLLECTIVE, start_ns, lane.now_ns - start_ns, 1, 8, 7, step, 2
            )
            lane.optimizer(2)
    timeline = make_timeline(*lanes, facts=rank_facts(100, 101))
    (culprit,) = (comparison := compare_ranks([view_host(timeline)])).facts.culprits
    alone = make_timeline(Lane().step().step().step())
    assert sum_parts(comparison, culprit, judge(alone)[1]) == {}
