"""What a step costs in CPU time, and what its workers could supply."""

import pytest

from fuelline.signals.recorded.work import measure_work
from tests.unit.builders import Lane, judge, make_timeline

STEPS = 60


def trained(*workers: int) -> Lane:
    lane = Lane()
    for number, pid in enumerate(workers):
        lane.worker(pid, number=number)
    for _ in range(STEPS):
        lane.step(wait=60, forward=10, backward=20, opt=10)
    return lane


def fetched(pid: int, ms: float) -> Lane:
    lane = Lane(pid)
    for _ in range(STEPS // 2):
        lane.fetch(ms)
    return lane


def test_workers_supply_the_batches_of_a_step_side_by_side() -> None:
    timeline = make_timeline(trained(200, 201), fetched(200, 100), fetched(201, 100))
    work = measure_work(timeline, *judge(timeline))
    assert work.supply == pytest.approx(0.05, rel=0.05)


def test_a_trainer_that_fetches_itself_is_supplied_by_nobody() -> None:
    lane = Lane()
    for _ in range(STEPS):
        lane.fetch(5)
        lane.step(wait=1, forward=10, backward=20, opt=10)
    timeline = make_timeline(lane)
    assert not measure_work(timeline, *judge(timeline)).supply
