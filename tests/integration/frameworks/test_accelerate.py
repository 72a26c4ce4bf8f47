"""Accelerate: its loader fetches a batch ahead, accumulates, skips, and evaluates when it likes."""

from pathlib import Path

import pytest

from fuelline.schema.wire import Kind
from tests.integration.frameworks.recorded import JOBS, Recorded, needs, record

pytestmark = needs("accelerate")

JOB = JOBS / "accelerated.py"
BATCHES = 20
"""Of an epoch; there are two."""


def check(job: Recorded, steps: int, backwards: int) -> None:
    assert job.faults() == 0
    assert job.answer["steps"] == steps
    assert job.count(Kind.STEP) == steps
    assert job.diagnosis["steps"]["count"] == steps - 1
    assert job.count(Kind.BACKWARD) == job.answer["batches"] == backwards


def test_the_loader_that_fetches_ahead_is_waited_for_once_a_batch(tmp_path: Path) -> None:
    job = record(tmp_path, JOB, "--sleep", "0.01")
    check(job, steps=40, backwards=40)
    (train,) = job.trainer.train_sources
    assert job.batches(train) == 2 * BATCHES
    # Positions 1 to 19 of each epoch; 0 and 1 come before the first step, so before the window.
    assert job.count_tiles(Kind.WAIT, "input") == 2 * (BATCHES - 1) - 1
    assert job.parts["input"] >= 37 * 4 * 0.01
    assert job.parts["input"] > job.parts["validation"]


def test_evaluation_inside_a_step_is_validation_and_no_input(tmp_path: Path) -> None:
    job = record(tmp_path, JOB, "--accumulate", "4", "--evaluate-every", "5")
    check(job, steps=10, backwards=40)
    train, validation = 1, 2
    assert job.trainer.train_sources == (train,)
    assert job.batches(validation) == 8 * 4
    # Of the eight evaluations one is before the window.
    assert job.count_tiles(Kind.WAIT, "validation") == 7 * 5
    assert job.count_tiles(Kind.WAIT, "input") <= 2 * (BATCHES - 1)


@pytest.mark.parametrize("dataset", ["rows", "stream"])
def test_skipped_batches_are_no_input_wait(tmp_path: Path, dataset: str) -> None:
    """Rows are skipped in the sampler; a stream has to be read."""
    stream = ("--stream",) if dataset == "stream" else ()
    job = record(tmp_path, JOB, "--skip", "15", *stream)
    check(job, steps=25, backwards=25)
    assert len(job.trainer.train_sources) == 2
    fetched = 2 * BATCHES if dataset == "stream" else 25
    assert job.batches(*job.trainer.train_sources) == fetched
    # Of the five batches of the resumed epoch two come before the window.
    assert job.count_tiles(Kind.WAIT, "input") == 3 + BATCHES - 1


@needs("torchdata")
def test_a_stateful_loader_is_known_by_its_settings(tmp_path: Path) -> None:
    job = record(tmp_path, JOB, "--stateful")
    check(job, steps=40, backwards=40)
    (train,) = job.trainer.train_sources
    assert job.batches(train) == 2 * BATCHES
    (settings,) = [loader for loader in job.timeline.loaders if loader.loader_id == train]
    assert (settings.loader or "").endswith("StatefulDataLoader")
    assert (settings.dataset, settings.num_workers) == ("data.Rows", 0)
    assert job.count(Kind.SOURCE_START) == 4


def test_accelerate_launch_starts_two_recorded_ranks(tmp_path: Path) -> None:
    launch = ("accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1")
    job = record(tmp_path, *launch, JOB, "--accumulate", "2")
    assert job.steps_by_process() == [10, 10]
    check(job, steps=10, backwards=20)
    assert len(job.trainer.train_sources) == 1
    # One evaluation is before the window.
    assert job.count_tiles(Kind.WAIT, "validation") == 3
