"""Does a wait hurt? Only if the step as a whole gets longer by it."""

import random

import pytest

from fuelline.schema.readings import Missing, Reading
from fuelline.schema.wire import Kind, Phase
from tests.unit.builders import START_NS, Lane, facts_of, make_timeline

STEPS = 120


def exposed_and_total(lane: Lane) -> tuple[float, float]:
    waiting = facts_of(make_timeline(lane)).input
    assert isinstance(waiting.exposed_share, Reading)
    assert isinstance(waiting.wait_share, Reading)
    return waiting.exposed_share.value, waiting.wait_share.value


def waits(seed: int = 7) -> list[float]:
    """Mostly short, now and then long: what a loader with few workers gives."""
    dice = random.Random(seed)
    return [dice.choice([2.0, 3.0, 5.0, 40.0]) for _ in range(STEPS)]


def test_a_synchronous_device_feels_every_wait() -> None:
    lane = Lane()
    for wait in waits():
        lane.step(wait=wait, forward=20, backward=40, opt=5)
    exposed, total = exposed_and_total(lane)
    assert exposed == pytest.approx(total)
    assert total > 0.1


def test_an_asynchronous_device_hides_a_wait_that_its_queue_covers() -> None:
    # The host runs ahead: what it waited for the batch, it does not wait for the device later.
    lane = Lane()
    for wait in waits():
        lane.step(wait=wait, forward=5, backward=60 - wait, opt=5)
    exposed, total = exposed_and_total(lane)
    assert total > 0.1
    assert exposed < 0.02


def test_a_queue_that_covers_most_of_the_waiting_leaves_the_rest() -> None:
    lane = Lane()
    for wait in waits():
        lane.step(wait=wait, forward=5, backward=60 - 0.8 * wait, opt=5)
    exposed, total = exposed_and_total(lane)
    assert exposed == pytest.approx(0.2 * total, rel=0.1)


def test_a_loader_with_workers_that_sets_the_pace_is_felt_though_its_steps_are_all_alike() -> None:
    # A batch every 70 ms: whatever compute takes, the wait makes up for it.
    lane = Lane().worker(pid=200).worker(pid=201, number=1)
    for compute in waits():
        lane.step(wait=70 - compute, forward=compute - 1, backward=1, opt=0)
    exposed, total = exposed_and_total(lane)
    assert exposed == pytest.approx(total)


@pytest.mark.parametrize(
    ("idle", "pickled_ms", "is_hidden"),
    [(90, 1, True), (50, 1, False), (90, 15, False)],
    ids=["batches are ready", "workers are busy", "workers are pickling"],
)
def test_waiting_for_workers_is_hidden_only_if_their_batches_were_ready(
    idle: int, pickled_ms: float, is_hidden: bool
) -> None:
    lane, worker = Lane().worker(pid=200), Lane(200)
    for wait in waits():
        lane.step(wait=wait, forward=5, backward=60 - wait, opt=5)
        worker.add(Kind.HANDOFF, pickled_ms, 10**6).gap(70 - pickled_ms)
    states = [
        (START_NS, 200, 200, int(Phase.WAIT), state, "", 0, count)
        for state, count in (("pipe", idle), ("running", 100 - idle))
    ]
    waiting = facts_of(make_timeline(lane, worker, states=states)).input
    hidden = waiting.exposed_share.value < 0.2 * waiting.wait_share.value
    assert hidden == is_hidden


def test_no_more_waiting_is_felt_than_the_device_was_idle() -> None:
    # The loss is read every tenth step: then the device has nothing queued and feels the next wait.
    # It takes 50 ms a batch and two more in its queue, so that it does not feel those that follow.
    lane, done_ms, idle_ms = Lane().worker(pid=200), 0.0, 0.0
    for step in range(STEPS):
        lane.batch(max(2.0, 30.0 - 9 * (step % 10)))
        now_ms = (lane.now_ns - START_NS) / 1e6
        idle_ms += max(0.0, now_ms - done_ms)
        done_ms = max(done_ms, now_ms) + 50
        lane.backward(max(1.0, done_ms - now_ms - 100)).optimizer(1)
        left_ms = done_ms - (lane.now_ns - START_NS) / 1e6
        lane.gap(left_ms if step % 10 == 9 else 0.2)
    exposed, total = exposed_and_total(lane)
    assert total > 0.12
    assert exposed == pytest.approx(idle_ms / done_ms, abs=0.05)


def test_a_loose_relation_hides_nothing() -> None:
    # On a crowded host compute and waiting move together for other reasons.
    lane = Lane()
    for wait in waits():
        lane.step(wait=wait, forward=5, backward=60 - 0.4 * wait, opt=5)
    exposed, total = exposed_and_total(lane)
    assert exposed == total


@pytest.mark.parametrize("threaded", [True, False])
def test_a_wait_that_cannot_be_seen_is_missing_not_zero(threaded: bool) -> None:
    lane, reader = Lane(), Lane(tid=7)
    for _ in range(STEPS):
        lane.gap(20).backward(40).optimizer(5)
        if threaded:
            reader.batch(60)
    waiting = facts_of(make_timeline(lane, reader)).input
    assert isinstance(waiting.exposed_share, Missing)
    assert (
        "another thread" if threaded else "no source of batches"
    ) in waiting.exposed_share.reason


def test_a_wait_that_never_changes_is_felt() -> None:
    lane = Lane()
    for _ in range(STEPS):
        lane.step(wait=30, forward=20, backward=40, opt=10)
    exposed, total = exposed_and_total(lane)
    assert exposed == pytest.approx(total) == pytest.approx(0.3)


def test_the_first_wait_of_an_epoch_does_not_hide_the_others() -> None:
    # It stands in place of a usual wait, in a step that is as long as all others.
    lane = Lane()
    for _ in range(4):
        lane.iterator(1)
        for _ in range(STEPS // 4):
            lane.step(wait=42, forward=1, backward=1, opt=1)
        lane.epoch_end(1)
    exposed, total = exposed_and_total(lane)
    assert exposed == pytest.approx(total)
    assert total > 0.8


def test_compute_that_scatters_on_its_own_does_not_hide_the_wait() -> None:
    dice = random.Random(3)
    lane = Lane()
    for wait in waits():
        lane.step(wait=wait, forward=20, backward=dice.uniform(30, 50), opt=5)
    exposed, total = exposed_and_total(lane)
    assert exposed > 0.75 * total


def test_a_handful_of_steps_does_not_prove_that_waiting_is_hidden() -> None:
    lane = Lane()
    for wait in (5, 40, 5, 40):
        lane.step(wait=wait, forward=5, backward=60 - wait, opt=5)
    exposed, total = exposed_and_total(lane)
    assert exposed == total


def test_the_interval_of_the_wait_widens_with_its_spread() -> None:
    steady, bursty = Lane(), Lane()
    for step in range(STEPS):
        steady.step(wait=20)
        bursty.step(wait=200 if step % 30 < 3 else 1)
    steady_wait = facts_of(make_timeline(steady)).input.wait_share
    bursty_wait = facts_of(make_timeline(bursty)).input.wait_share
    assert steady_wait.high - steady_wait.low < 0.01
    assert bursty_wait.high - bursty_wait.low > 0.1


def test_a_short_wait_that_the_queue_covers_is_hidden_though_nobody_saw_the_workers() -> None:
    # Too few looks at the worker to see it idle; its fetches take a tenth of the time.
    lane, worker = Lane().worker(pid=200), Lane(pid=200)
    for wait in waits():
        lane.step(wait=wait, forward=5, backward=60 - wait, opt=5)
        worker.fetch(7).gap(63)
    facts = facts_of(make_timeline(lane, worker))
    assert isinstance(facts.input.exposed_share, Reading)
    assert facts.input.exposed_share.value < 0.02


def test_a_worker_that_is_always_busy_sets_the_pace_though_nobody_saw_it() -> None:
    lane, worker = Lane().worker(pid=200), Lane(pid=200)
    for compute in waits():
        lane.step(wait=70 - compute, forward=compute - 1, backward=1, opt=0)
        worker.fetch(69).gap(1)
    facts = facts_of(make_timeline(lane, worker))
    assert facts.input.exposed_share == facts.input.wait_share


def hidden_collectives(lane: Lane) -> float:
    return facts_of(make_timeline(lane)).hidden_frac["collectives"]


def meet(lane: Lane, ms: float) -> Lane:
    """A collective that this rank waits in, between backward and optimizer."""
    return lane.add(Kind.COLLECTIVE, ms, 1, 1000, 0, len(lane.rows), 2)


def test_a_wait_for_other_ranks_that_the_next_step_makes_up_for_is_hidden() -> None:
    lane, before = Lane(), 0.0
    for wait in waits():
        meet(lane.batch(1).gap(5).backward(60 - before), wait).optimizer(1)
        before = wait
    assert hidden_collectives(lane) > 0.95


def test_a_rank_that_waits_because_it_was_early_feels_it() -> None:
    # Whoever is first waits for the last, after 60 ms; the next step knows nothing of it.
    lane = Lane()
    for compute in waits():
        meet(lane.batch(1).gap(5).backward(compute), 60 - compute).optimizer(1)
    assert hidden_collectives(lane) == 0


def test_waits_and_steps_that_drift_apart_hide_nothing() -> None:
    # The rank gets slower and slower, and so waits for the others less and less.
    dice, lane = random.Random(5), Lane()
    for step in range(STEPS):
        compute = 20 + step / 4 + dice.uniform(0, 2)
        meet(lane.batch(1).gap(5).backward(compute), 60 - compute).optimizer(1)
    assert hidden_collectives(lane) == 0


def test_few_steps_do_not_show_what_the_next_one_makes_up_for() -> None:
    lane, before = Lane(), 0.0
    for wait in waits()[:10]:
        meet(lane.batch(1).gap(5).backward(60 - before), wait).optimizer(1)
        before = wait
    assert hidden_collectives(lane) == 0
