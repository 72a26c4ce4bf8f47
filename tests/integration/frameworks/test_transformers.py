"""Hugging Face's Trainer: evaluates with gradients on, saves without torch.save, resumes."""

from pathlib import Path

import pytest

from fuelline.schema.wire import Kind
from tests.integration.frameworks.recorded import JOBS, Recorded, needs, record, run_plainly

pytestmark = needs("transformers", "accelerate")

JOB = JOBS / "causal.py"
BATCHES = 10
"""Of an epoch; there are two, with an evaluation and a checkpoint every five steps."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trainer")


@pytest.fixture(scope="module")
def job(folder: Path) -> Recorded:
    return record(folder, JOB, folder / "out")


def test_steps_are_counted_and_batches_waited_for(job: Recorded) -> None:
    assert job.faults() == 0
    assert job.count(Kind.STEP) == job.answer["steps"] == 2 * BATCHES
    assert job.diagnosis["steps"]["count"] == 2 * BATCHES - 1
    assert job.trainer.train_sources == (1,)
    # Positions 1 to 9 of each epoch; 0 and 1 come before the first step, so before the window.
    assert job.count_tiles(Kind.WAIT, "input") == 2 * (BATCHES - 1) - 1


def test_evaluation_is_told_from_input(job: Recorded) -> None:
    # Four evaluations of three batches and an end, each with a loader of its own.
    assert job.count_tiles(Kind.WAIT, "validation") == 4 * 4
    assert job.parts["validation"] > job.parts["input"]


def test_checkpoints_are_seen_with_their_weights(job: Recorded, folder: Path) -> None:
    weights = (folder / "out" / "checkpoint-5" / "model.safetensors").stat().st_size
    assert job.events(Kind.PAUSE)["a"].to_list().count(weights) == 4
    assert job.parts["checkpoint"] > 0


def test_recording_changes_neither_weights_nor_loss(job: Recorded, tmp_path: Path) -> None:
    assert job.answer == run_plainly(JOB, tmp_path)


def test_a_resumed_run_waits_only_for_the_batches_it_trains_on(
    job: Recorded, folder: Path, tmp_path: Path
) -> None:
    checkpoint = folder / "out" / "checkpoint-5"
    resumed = record(tmp_path, JOB, tmp_path / "out", "--resume", checkpoint)
    assert resumed.answer["weights"] == job.answer["weights"]
    assert resumed.count(Kind.STEP) == 15
    assert len(resumed.trainer.train_sources) == 2
    # Of the five batches that are left of the first epoch two come before the window.
    assert resumed.count_tiles(Kind.WAIT, "input") == 3 + BATCHES - 1


def test_accumulation_with_workers_takes_all_batches_of_a_step_and_waits_for_each(
    tmp_path: Path,
) -> None:
    options = ("--accumulate", "3", "--workers", "1", "--sleep", "0.02")
    job = record(tmp_path, JOB, tmp_path / "out", *options)
    # Three steps of three batches and one of one, in each epoch.
    assert job.count(Kind.STEP) == job.answer["steps"] == 8
    assert job.count(Kind.BACKWARD) == job.batches(1) == 2 * BATCHES
    assert job.trainer.train_sources == (1,)
    assert job.trainer.workers == 1
    # Positions 0 to 3 of the first epoch come before the window.
    assert job.count_tiles(Kind.WAIT, "input") == 6 + 9
    assert job.parts["input"] > 0
