"""What workers on other hosts would bring, and whether the governor tries them."""

from dataclasses import replace

import pytest

from fuelline.fix.elastic.governor import Governor
from fuelline.fix.elastic.observation import Observation, SettingChange, TurnLimits
from fuelline.fix.elastic.reach import RemoteFigures, predict

LOOK = Observation(
    seconds=1.0, batches=10, wait_s=0.9, busy_s=2.0, cpu_s=2.0, fetches=10, queued=0.0
)
"""Two workers, both busy on a core, 200 ms a batch; the trainer could take 100 a second."""
FIGURES = RemoteFigures(count=8, fetch_s=0.2, batch_bytes=1e6, bytes_per_s=1e9)
LIMITS = TurnLimits(base=2, most=18, cores=2.0, base_window=4, most_window=400)
HERE = (10.0, 0)


def test_each_worker_brings_a_batch_a_fetch() -> None:
    forecast = predict(LOOK, FIGURES, HERE, (2.0, 400))
    assert forecast.count == 8
    assert forecast.rate == pytest.approx(10 + 8 / 0.2)


def test_the_line_bounds_what_comes() -> None:
    narrow = replace(FIGURES, bytes_per_s=10e6)
    forecast = predict(LOOK, narrow, HERE, (2.0, 400))
    assert forecast.rate == pytest.approx(20.0)
    assert forecast.count == 3, "two carry as much as the line does, and fetches differ"


def test_the_trainer_takes_no_more_than_it_can_use() -> None:
    slow = replace(LOOK, wait_s=0.5)
    assert predict(slow, FIGURES, HERE, (2.0, 400)).rate == pytest.approx(20.0)


def test_receiving_takes_cores_from_workers_here() -> None:
    heavy = replace(FIGURES, relay_s=0.02)
    assert predict(LOOK, heavy, HERE, (2.0, 400)).rate == pytest.approx(10 * (1 - 0.4) + 40)


def test_a_short_window_bounds_the_rate_by_the_slowest_fetch() -> None:
    assert predict(LOOK, FIGURES, HERE, (2.0, 4)).rate == pytest.approx(20.0)


def govern(figures: RemoteFigures | None, *looks: Observation) -> tuple[Governor, SettingChange]:
    governor = Governor(LIMITS, 2, 4, figures=figures)
    changes = [governor.hear(look) for look in looks]
    found = [each for each in changes if each is not None]
    assert found
    return governor, found[-1]


def test_without_a_free_core_other_hosts_are_tried_with_a_prediction() -> None:
    governor, change = govern(FIGURES, LOOK, LOOK, LOOK)
    assert (change.active, change.remote) == (2, 8)
    assert change.predicted == pytest.approx(5.0)
    assert governor.trial is not None


def test_where_a_core_is_free_they_are_not() -> None:
    idle = replace(LOOK, cpu_s=0.1)
    _, change = govern(FIGURES, idle, idle, idle)
    assert change.remote is None
    assert change.active > 2


def test_a_trial_that_slows_the_job_is_taken_back_and_not_repeated() -> None:
    governor = Governor(LIMITS, 2, 4, figures=FIGURES)
    for _ in range(3):
        governor.hear(LOOK)
    slower = replace(LOOK, batches=5)
    answers = [governor.hear(slower) for _ in range(3)]
    assert answers[-1] == SettingChange(2, 4, "it did not help", is_trial=False, remote=0)
    assert [each.verdict for each in governor.ended] == ["rolled back"]
    assert all(governor.hear(LOOK) is None for _ in range(40))


def test_a_gain_that_does_not_count_is_not_tried() -> None:
    governor = Governor(LIMITS, 2, 4, figures=replace(FIGURES, count=1, fetch_s=30.0))
    assert [governor.hear(LOOK) for _ in range(4)] == [None] * 4
    assert governor.is_remote_refused
    assert governor.remote_refusal == "they are predicted to bring 0 %"


def test_lost_workers_void_what_was_measured() -> None:
    governor, _ = govern(FIGURES, LOOK, LOOK, LOOK)
    governor.lose_remote(3)
    assert (governor.remote, governor.trial) == (3, None)
    governor.lose_remote(0)
    assert governor.figures is None


def test_missing_workers_are_what_those_here_do_not_bring() -> None:
    governor = Governor(LIMITS, 2, 4)
    for _ in range(3):
        governor.hear(LOOK)
    assert governor.count_missing(LOOK) == 21  # 1.15 * 0.2 s * 90 batches a second
    assert governor.count_missing(replace(LOOK, wait_s=0.0)) == 0
