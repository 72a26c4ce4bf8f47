"""A recorded training computes bit for bit what it computes without us, however it loads data."""

from pathlib import Path

import pytest

from fuelline.schema.wire import Flag, Kind
from tests.integration.harness import Left, Outcome, read_spools, run

pytestmark = pytest.mark.torch

WAYS = ("inline", "fork", "persistent", "iterable-inline", "iterable-fork", "spawn")
EPOCHS = 11
"""Two for each way but spawn, whose workers take seconds to start."""


@pytest.fixture(scope="module")
def plain() -> Outcome:
    return run("train.py")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def recorded(run_dir: Path) -> Outcome:
    return run("train.py", run_dir=run_dir)


@pytest.fixture(scope="module")
def spools(recorded: Outcome, run_dir: Path) -> list[Left]:
    assert recorded.exit_code == 0
    return read_spools(run_dir)


@pytest.mark.parametrize("part", ["weights", "batches", "order", "random"])
@pytest.mark.parametrize("way", WAYS)
def test_recording_changes_nothing(plain: Outcome, recorded: Outcome, way: str, part: str) -> None:
    assert recorded.answer[way][part] == plain.answer[way][part]


def test_recording_prints_nothing(plain: Outcome, recorded: Outcome) -> None:
    assert (recorded.errors, len(recorded.output)) == (plain.errors, len(plain.output))


def test_no_hook_failed(spools: list[Left], run_dir: Path) -> None:
    assert [left.faults for left in spools] == [0] * len(spools)
    assert [left.blindspots() for left in spools if left.blindspots()] == []
    assert list(run_dir.glob("hooks-failed-*")) == []


def test_trainer_records_every_batch_backward_and_step(spools: list[Left]) -> None:
    trainer = max(spools, key=lambda left: len(left.of(Kind.WAIT)))
    batches = [record for record in trainer.of(Kind.WAIT) if not record[8] & Flag.END]
    ends = [record for record in trainer.of(Kind.WAIT) if record[8] & Flag.END]
    # An epoch has 10 batches; two iterable workers with 24 rows make 5 each.
    assert len(batches) == EPOCHS * 10
    assert len(ends) == EPOCHS
    assert len(trainer.of(Kind.BACKWARD)) == len(batches)
    assert trainer.steps == EPOCHS * 5
    assert len(trainer.settings()) == len(WAYS)


def test_positions_restart_with_each_epoch_also_for_persistent_workers(spools: list[Left]) -> None:
    trainer = max(spools, key=lambda left: len(left.of(Kind.WAIT)))
    positions = [record[6] for record in trainer.of(Kind.WAIT)]
    assert positions == [*range(11)] * EPOCHS


def test_every_worker_is_named_by_the_trainer_and_tells_of_its_fetches(spools: list[Left]) -> None:
    trainer = max(spools, key=lambda left: len(left.of(Kind.WAIT)))
    named = {(record[4], record[3]) for record in trainer.of(Kind.WORKER)}
    told = {
        (left.pid, record[2])
        for left in spools
        for record in left.of(Kind.FETCH)
        if left is not trainer
    }
    assert told == named
    assert len(named) == 4 * 2 + 2 + 2 * 2 + 4


def test_fetches_in_trainer_and_workers_add_up_to_all_samples(spools: list[Left]) -> None:
    samples = sum(record[3] for left in spools for record in left.of(Kind.FETCH))
    assert samples == EPOCHS * 48


def test_workers_record_a_handoff_for_each_batch(spools: list[Left]) -> None:
    handoffs = sum(len(left.of(Kind.HANDOFF)) for left in spools)
    assert handoffs == (2 + 2 + 2 + 1) * 10
