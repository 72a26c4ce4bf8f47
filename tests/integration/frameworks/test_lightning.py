"""Lightning: forward and backward run in a closure of the optimizer, validation never ends."""

from pathlib import Path

import pytest

from fuelline.schema.wire import Kind
from tests.integration.frameworks.recorded import JOBS, Recorded, needs, record, run_plainly

pytestmark = needs("lightning")

JOB = JOBS / "lit.py"
BATCHES = 20
"""Of an epoch; there are two, with a validation of four batches after each."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lightning")


@pytest.fixture(scope="module")
def job(folder: Path) -> Recorded:
    return record(folder, JOB, folder / "out")


def check(job: Recorded, steps: int, backwards: int) -> None:
    assert job.faults() == 0
    assert job.count(Kind.STEP) == steps
    assert job.diagnosis["steps"]["count"] == steps - 1
    assert job.count(Kind.BACKWARD) == backwards


def test_steps_are_counted_and_their_parts_told_apart(job: Recorded) -> None:
    check(job, steps=2 * BATCHES, backwards=2 * BATCHES)
    assert job.answer["steps"] == 2 * BATCHES
    assert job.count_tiles(Kind.BACKWARD, "backward") == 2 * BATCHES - 1
    assert job.parts["optimizer"] > 0
    assert job.parts["forward"] > job.parts["input"]
    assert job.count_tiles(Kind.WAIT, "input") == 2 * (BATCHES - 1)


def test_validation_is_told_from_training(job: Recorded) -> None:
    (train,) = job.trainer.train_sources
    assert job.batches(train) == 2 * BATCHES
    assert job.count_tiles(Kind.WAIT, "validation") == 2 * 4


def test_a_checkpoint_lasts_until_it_is_on_the_disk(job: Recorded, folder: Path) -> None:
    """`torch.save` only fills a buffer here; the record around it has the size of the file."""
    sizes = {file.stat().st_size for file in (folder / "out").glob("*.ckpt")}
    saves = job.events(Kind.PAUSE)
    assert sizes <= set(saves["a"])
    assert job.count_tiles(Kind.PAUSE, "checkpoint") == 10
    assert saves.height == 2 * 10


def test_recording_changes_neither_weights_nor_loss(job: Recorded, tmp_path: Path) -> None:
    assert job.answer == run_plainly(JOB, tmp_path)


def test_accumulation_has_several_backwards_a_step(tmp_path: Path) -> None:
    job = record(tmp_path, JOB, tmp_path / "out", "--accumulate", "4")
    check(job, steps=10, backwards=2 * BATCHES)
    # The first four batches of the first epoch come before the window.
    assert job.count_tiles(Kind.WAIT, "input") == 16 + BATCHES - 1


def test_a_stream_is_fetched_ahead_and_waited_for_once_a_batch(tmp_path: Path) -> None:
    job = record(tmp_path, JOB, tmp_path / "out", "--stream", "--sleep", "0.01")
    check(job, steps=2 * BATCHES, backwards=2 * BATCHES)
    assert job.count_tiles(Kind.WAIT, "input") == 2 * (BATCHES - 1) - 1
    assert job.parts["input"] >= 37 * 4 * 0.01


def test_two_loaders_that_feed_every_step_are_both_waited_for(tmp_path: Path) -> None:
    job = record(tmp_path, JOB, tmp_path / "out", "--two")
    check(job, steps=2 * BATCHES, backwards=2 * BATCHES)
    assert len(job.trainer.train_sources) == 2
    assert job.count_tiles(Kind.WAIT, "input") == 2 * 2 * (BATCHES - 1)
    assert job.count_tiles(Kind.WAIT, "validation") == 2 * 4


def test_a_training_step_that_takes_its_batch_itself_is_a_step_with_a_wait(tmp_path: Path) -> None:
    job = record(tmp_path, JOB, tmp_path / "out", "--iterator")
    check(job, steps=2 * BATCHES, backwards=2 * BATCHES)
    assert job.count_tiles(Kind.WAIT, "input") == 2 * (BATCHES - 1)
    assert job.count_tiles(Kind.BACKWARD, "backward") == 2 * BATCHES - 1


def test_a_resumed_run_waits_only_for_the_batches_it_trains_on(
    job: Recorded, folder: Path, tmp_path: Path
) -> None:
    (checkpoint,) = (folder / "out").glob("*step=8.ckpt")
    resumed = record(tmp_path, JOB, tmp_path / "out", "--resume", checkpoint)
    assert resumed.answer["steps"] == job.answer["steps"]
    check(resumed, steps=32, backwards=32)
    (train,) = resumed.trainer.train_sources
    assert resumed.batches(train) == 32
    assert resumed.count_tiles(Kind.WAIT, "input") == 11 + BATCHES - 1
