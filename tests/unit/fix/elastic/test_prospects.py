"""More workers bring what the cores have left for them, strangers counted."""

from dataclasses import replace

import pytest

from fuelline.fix.elastic.governor import predict_speedup
from fuelline.fix.elastic.observation import Observation

ALONE = Observation(
    seconds=1.0, batches=50, wait_s=0.9, busy_s=1.0, cpu_s=1.0, fetches=50, queued=0.0,
)  # fmt: skip
"""One worker that computes all the time."""


def test_a_second_worker_on_a_second_core_doubles_the_rate() -> None:
    assert predict_speedup(ALONE, 2, cores=2.0) == pytest.approx(2.0)


def test_a_stranger_on_the_second_core_takes_his_third_of_both() -> None:
    assert predict_speedup(replace(ALONE, others=1.0), 2, cores=2.0) == pytest.approx(4 / 3)


def test_strangers_are_told_by_how_long_the_workers_waited_for_a_core() -> None:
    """Two workers and two strangers on two cores: each has half of one."""
    crowded = replace(ALONE, busy_s=2.0, cpu_s=1.0, queued=0.5)
    # Four workers and two strangers: 4/6 of two cores, where 2/4 of them were had.
    assert predict_speedup(crowded, 4, cores=2.0) == pytest.approx(4 / 3)


def test_workers_that_wait_for_storage_need_no_core_of_a_stranger() -> None:
    waiting = replace(ALONE, cpu_s=0.05, others=1.0)
    assert predict_speedup(waiting, 4, cores=2.0) == pytest.approx(4.0, rel=0.05)


def test_nothing_is_faster_than_the_trainer() -> None:
    assert predict_speedup(replace(ALONE, wait_s=0.5), 8, cores=64.0) == pytest.approx(2.0)


def test_strangers_on_every_core_do_not_stop_workers_that_hardly_need_one() -> None:
    asleep = replace(ALONE, cpu_s=0.02, own_cpu_s=0.05, others=2.0)
    assert predict_speedup(asleep, 4, cores=2.0) > 3.5
