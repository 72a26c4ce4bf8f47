"""The budget sums to the whole; steps and window are what the story says."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.schema.readings import Missing
from fuelline.schema.run.recording import STEP_HOOK, Blindspot
from fuelline.schema.wire import Kind, Phase
from tests.unit.builders import MS, RUN, START_NS, TRAINER, Lane, facts_of, make_timeline

WATCHED = (START_NS, TRAINER, TRAINER, int(Phase.COMPUTE), "running", "", 0, 5)
"""One row of thread states: somebody watched the trainer."""


def looping_job(steps: int = 12) -> Lane:
    lane = Lane()
    for _ in range(steps):
        lane.step(wait=10, forward=10, backward=20, opt=5).gap(5)
    return lane


def shares(facts) -> dict[str, float]:
    return {entry.part: entry.share for entry in facts.budget}


STEP = st.tuples(*(st.integers(0, 50) for _ in range(5)))


@given(st.lists(STEP, min_size=3, max_size=15), st.booleans())
def test_shares_sum_to_one_and_seconds_to_the_window(steps: list[tuple], watched: bool) -> None:
    lane = Lane()
    for wait, forward, backward, opt, loop in steps:
        lane.step(wait, forward, backward, opt + 1).gap(loop)
    facts = facts_of(make_timeline(lane, states=[WATCHED] if watched else []))
    assert sum(entry.share for entry in facts.budget) == pytest.approx(1)
    assert sum(entry.seconds for entry in facts.budget) == pytest.approx(facts.window.seconds)
    assert all(entry.seconds >= 0 for entry in facts.budget)


def test_the_loop_is_named_when_somebody_watched() -> None:
    budget = shares(facts_of(make_timeline(looping_job(), states=[WATCHED])))
    assert budget["loop"] == pytest.approx(55 / (11 * 45 + 55))
    assert budget["unexplained"] == 0


def test_the_loop_is_unexplained_when_nobody_watched() -> None:
    budget = shares(facts_of(make_timeline(looping_job())))
    assert "loop" not in budget
    assert budget["unexplained"] == pytest.approx(55 / (11 * 45 + 55))


def test_samples_of_the_loop_that_wait_for_the_device_count_as_sync() -> None:
    stacks = [
        (START_NS, START_NS + 10**12, TRAINER, TRAINER, ["main (/job/train.py:9)"], 30),
        (
            START_NS,
            START_NS + 10**12,
            TRAINER,
            TRAINER,
            ["main (/job/train.py:10)", "synchronize (/x/site-packages/torch/cuda/__init__.py:1)"],
            10,
        ),
    ]
    budget = shares(facts_of(make_timeline(looping_job(), states=[WATCHED], stacks=stacks)))
    assert budget["sync"] == pytest.approx(budget["loop"] / 3)


def test_parts_come_in_the_order_of_a_step() -> None:
    lane = looping_job().add(Kind.PAUSE, 50, 1)
    facts = facts_of(make_timeline(lane, states=[WATCHED]))
    assert [entry.part for entry in facts.budget] == [
        "input",
        "forward",
        "backward",
        "optimizer",
        "loop",
        "checkpoint",
        "unexplained",
    ]


def test_the_window_leaves_out_what_came_before_and_after() -> None:
    lane = Lane().gap(4000).step().step().step()
    run = msgspec.structs.replace(RUN, ended_ns=lane.now_ns + 700 * MS)
    window = facts_of(make_timeline(lane, run=run)).window
    assert window.before_seconds == pytest.approx(4.045)
    assert window.seconds == pytest.approx(0.090)
    assert window.after_seconds == pytest.approx(0.7)


def test_a_run_that_never_ended_has_nothing_after_the_window() -> None:
    assert facts_of(make_timeline(looping_job())).window.after_seconds == 0


def test_steps_are_timed_from_boundary_to_boundary() -> None:
    steps = facts_of(make_timeline(looping_job(steps=6))).steps
    assert (steps.count, steps.kind) == (5, "train")
    assert steps.mean == pytest.approx(0.050)
    assert steps.p50 == pytest.approx(0.050)
    assert steps.p95 == pytest.approx(0.050)


def test_the_tail_of_steps_is_seen() -> None:
    lane = Lane()
    for number in range(41):
        lane.step(wait=400 if number % 10 == 5 else 10)
    steps = facts_of(make_timeline(lane)).steps
    assert steps.p50 == pytest.approx(0.045)
    assert steps.p95 == pytest.approx(0.435)


def test_samples_per_second_come_from_batches_inside_the_window() -> None:
    lane = Lane().step()
    for _ in range(10):
        lane.batch(10, samples=8).gap(10).backward(20).optimizer(10)
    assert facts_of(make_timeline(lane)).steps.samples_per_s == pytest.approx(8 / 0.050)


@pytest.mark.parametrize("what", ["hook loader wait", "hooks loader"])
def test_after_a_hook_has_failed_the_time_between_events_is_unexplained(what: str) -> None:
    lane = Lane()
    for _ in range(20):
        lane.step(wait=10, forward=30, backward=20, opt=5)
    spot = Blindspot(what=what, why="AttributeError at end:3", forbids="waits", code=STEP_HOOK)
    facts = facts_of(make_timeline(lane, facts={"blindspots": (spot,)}))
    assert facts.share_of("unexplained") == pytest.approx(30 / 65, abs=0.02)
    assert facts.share_of("forward") == 0
    assert isinstance(facts.input.exposed_share, Missing)
    assert f"{what} failed" in facts.input.exposed_share.reason
