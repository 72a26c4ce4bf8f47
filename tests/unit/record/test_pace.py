"""Turns come as often as asked, and further apart when they are expensive."""

import pytest

from fuelline.record.pace import ShareGovernor, Task

S = 1_000_000_000


def make(every_ns: int = S, share: float = 0.01, jitter: float = 0.0) -> Task:
    return Task("t", lambda _now_ns: None, every_ns, share, jitter_frac=jitter)


def test_a_cheap_task_keeps_its_rate() -> None:
    task = make()
    task.run(5 * S)
    assert task.due_ns == 6 * S


def test_an_expensive_task_is_stretched_to_its_share() -> None:
    task = make()
    now_ns, turns = 0, 0
    while now_ns < 1000 * S:
        task.pay(now_ns, S // 10)
        now_ns, turns = now_ns + task.interval_ns, turns + 1
    assert task.interval_ns == 10 * S
    assert turns * 0.1 / 1000 == pytest.approx(0.01, rel=0.03)


def test_one_expensive_turn_is_paid_from_savings_and_leaves_the_rate_alone() -> None:
    task = make()
    task.pay(0, S // 10)
    assert task.interval_ns == S


def test_a_debt_is_paid_back_once() -> None:
    task = make()
    task.pay(0, S // 10 + S // 20)
    assert task.interval_ns == 5 * S
    task.pay(5 * S, 0)
    assert task.interval_ns == S


def test_jitter_moves_turns_both_ways_but_not_beyond_its_bounds() -> None:
    task = make(jitter=0.3)
    gaps = []
    for _ in range(200):
        task.run(0)
        gaps.append(task.due_ns / task.interval_ns)
    assert 0.7 <= min(gaps) < 1 < max(gaps) <= 1.3


def test_a_task_that_raises_still_gets_its_next_turn_settled() -> None:
    def fail(_now_ns: int) -> None:
        raise ZeroDivisionError

    task = Task("t", fail, S, 0.01)
    with pytest.raises(ZeroDivisionError):
        task.run(S)
    assert task.due_ns >= 2 * S


def test_slow_tasks_wait_for_a_faster_one_to_wake_them() -> None:
    task = make()
    task.run(0)
    assert task.due_ns < task.wake_ns < 2 * task.due_ns


def test_a_process_over_its_share_slows_its_task_down_and_recovers() -> None:
    task = make(share=1.0)
    governor = ShareGovernor(task, 0.01)
    for second in range(20):
        governor.adjust(second * S, second * S // 50)
    assert task.interval_ns > 2 * S
    for second in range(20, 80):
        governor.adjust(second * S, 20 * S // 50)
    assert task.interval_ns == S


def test_the_governor_never_stops_a_task() -> None:
    task = make(share=1.0)
    governor = ShareGovernor(task, 0.01)
    for second in range(500):
        governor.adjust(second * S, second * S)
    assert task.interval_ns <= 8 * S


def test_a_head_start_pays_for_the_first_turns_and_is_gone_then() -> None:
    task = make(share=0.001)
    task.head_start_ns = S
    for second in range(10):
        task.pay(second * S, S // 10)
        assert task.interval_ns == S, second
    task.pay(10 * S, S // 10)
    assert task.interval_ns > 10 * S
