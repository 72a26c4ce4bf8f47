from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.timeline.replay import Operation, ReplayedStep, StuckError

MS = 1_000_000


def op(worker: int, start: float, end: float, *collective: int) -> Operation:
    return Operation(worker, int(start * MS), int(end * MS), *collective)


def test_one_worker_takes_the_sum_of_what_it_does_without_the_gaps() -> None:
    step = ReplayedStep([op(0, 0, 10), op(0, 15, 20)])
    assert step.replay_ns(step.durations_ns()) == 15 * MS


def test_operations_side_by_side_stay_side_by_side() -> None:
    step = ReplayedStep([op(0, 0, 10), op(0, 2, 30)])
    assert step.replay_ns(step.durations_ns()) == 28 * MS


def test_who_meets_waits_for_the_last_and_then_transfers() -> None:
    step = ReplayedStep([op(0, 0, 10), op(1, 0, 40), op(0, 10, 45, 1, 0), op(1, 40, 45, 1, 0)])
    durations = step.durations_ns()
    assert durations == [10 * MS, 40 * MS, 5 * MS, 5 * MS]
    assert step.replay_ns(durations) == 45 * MS
    durations[1] = 12 * MS
    assert step.replay_ns(durations) == 17 * MS


def test_a_send_and_a_receive_that_were_posted_together_do_not_block_each_other() -> None:
    """Both workers send and receive in one batch; neither is done before both have begun."""
    step = ReplayedStep(
        [
            op(0, 0, 10),
            op(1, 0, 20),
            op(0, 10, 21, 1, 0),
            op(0, 10, 21, 2, 0),
            op(1, 20, 21, 1, 0),
            op(1, 20, 21, 2, 0),
        ]
    )
    assert step.replay_ns(step.durations_ns()) == 21 * MS


def test_a_start_a_little_before_the_end_of_the_one_before_is_still_after_it() -> None:
    step = ReplayedStep([op(0, 0, 10), op(0, 9.9, 20)])
    assert step.replay_ns([10 * MS, 10 * MS]) == 20 * MS


def test_an_order_that_can_never_have_happened_is_said() -> None:
    step = ReplayedStep(
        [op(0, 0, 10, 1, 0), op(0, 20, 30, 2, 0), op(1, 0, 10, 2, 0), op(1, 20, 30, 1, 0)]
    )
    with pytest.raises(StuckError):
        step.replay_ns(step.durations_ns())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), min_size=1, max_size=30))
def test_without_collectives_the_longest_worker_is_the_step(work: list[tuple[int, int]]) -> None:
    """Against an oracle that only adds."""
    now = dict.fromkeys(range(4), 0)
    operations = []
    for worker, length in work:
        operations.append(op(worker, now[worker], now[worker] + length))
        now[worker] += length
    step = ReplayedStep(operations)
    assert step.replay_ns(step.durations_ns()) == max(now.values()) * MS


@given(
    st.lists(st.lists(st.integers(1, 50), min_size=3, max_size=3), min_size=1, max_size=8),
)
def test_a_barrier_after_each_round_costs_the_longest_of_each(rounds: list[list[int]]) -> None:
    """Against an oracle of maxima; transfers take a millisecond."""
    operations = []
    now = 0.0
    for number, lengths in enumerate(rounds):
        last = now + max(lengths)
        for worker, length in enumerate(lengths):
            operations.append(op(worker, now, now + length))
            operations.append(op(worker, now + length, last + 1, 0, number))
        now = last + 1
    step = ReplayedStep(operations)
    expected = sum(max(lengths) + 1 for lengths in rounds) * MS
    assert step.replay_ns(step.durations_ns()) == expected
