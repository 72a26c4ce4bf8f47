import random
from itertools import pairwise

import pytest

from fuelline.record.attach.estimate import PartSpan
from fuelline.record.attach.loops import Counted, SeenTurns, batches_per_step, find_pace

S = 1_000_000_000
LOOP = ("train", "/home/me/train.py")


def growing(per_s: float, moments: range = range(0, 60, 5)) -> list[Counted]:
    return [Counted(at * S, round(at * per_s)) for at in moments]


def test_a_variable_that_grows_with_the_loop_counts_it() -> None:
    values = {(*LOOP, "i"): growing(12.0), (*LOOP, "n"): growing(12.0 * 64)}
    pace = find_pace(values, 5.0, 10.0)
    assert pace is not None
    assert pace.batches_until(30 * S) - pace.batches_until(10 * S) == pytest.approx(240, rel=0.01)


def test_none_counts_that_is_slower_than_the_turns_that_were_seen() -> None:
    assert find_pace({(*LOOP, "k"): growing(2.0)}, 5.0, 10.0) is None


def test_a_count_that_begins_anew_each_epoch_goes_on_at_its_usual_pace() -> None:
    counted = [Counted(at * S, round(at * 10) % 220) for at in range(0, 60, 5)]
    pace = find_pace({(*LOOP, "i"): counted}, 5.0, 10.0)
    assert pace is not None
    assert pace.batches_until(55 * S) == pytest.approx(550, rel=0.05)


def test_numbers_without_a_pace_count_nothing() -> None:
    draw = random.Random(7)
    counted = [Counted(at * S, draw.randrange(1000)) for at in range(0, 60, 5)]
    assert find_pace({(*LOOP, "idx"): counted}, 0.0, 10.0) is None


@pytest.mark.parametrize(("per_s", "batches"), [(30.0, 1), (15.0, 2), (7.5, 4), (22.0, 1)])
def test_a_loop_may_take_several_batches_in_a_turn(per_s: float, batches: int) -> None:
    assert batches_per_step({(*LOOP, "step"): growing(per_s)}, 30.0) == batches


@pytest.mark.parametrize(("step_s", "share"), [(0.1, 0.5), (0.1, 0.8), (0.05, 0.3), (0.3, 0.02)])
def test_turns_that_fall_between_two_samples_are_added(step_s: float, share: float) -> None:
    draw = random.Random(3)
    moments, at = [], 0.0
    while at < 600:
        moments.append(at)
        at += draw.expovariate(50)
    spans = [
        PartSpan(int(one * S), int(other * S), "input" if one % step_s < share * step_s else "loop")
        for one, other in pairwise(moments)
    ]
    turns = SeenTurns()
    turns.add(spans)
    assert turns.steps_per_s(50) == pytest.approx(1 / step_s, rel=0.1)
