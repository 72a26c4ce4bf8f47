"""The framework behaves as without us: iterators, pickling, errors, threads, gradients."""

from pathlib import Path

import pytest

from fuelline.schema.wire import Flag, Kind
from tests.integration.harness import Left, Outcome, read_spools, run, trainer_of
from tests.integration.jobs.behaviour import QUESTIONS

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def plain() -> Outcome:
    return run("behaviour.py")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def recorded(run_dir: Path) -> Outcome:
    return run("behaviour.py", run_dir=run_dir)


@pytest.fixture(scope="module")
def spools(recorded: Outcome, run_dir: Path) -> list[Left]:
    assert recorded.exit_code == 0, recorded.errors
    return read_spools(run_dir)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_the_same_when_recorded(
    plain: Outcome, recorded: Outcome, question: str
) -> None:
    assert recorded.answer[question] == plain.answer[question]


def test_recording_prints_nothing(recorded: Outcome) -> None:
    assert "fuelline" not in recorded.output + recorded.errors


def test_no_hook_failed(spools: list[Left]) -> None:
    assert {left.pid: left.blindspots() for left in spools if left.faults} == {}


def test_nested_loaders_are_part_of_the_outer_fetch(spools: list[Left]) -> None:
    trainer = trainer_of(spools)
    nested = [
        record[2]
        for record, settings in zip(trainer.of(Kind.SOURCE), trainer.settings(), strict=True)
        if "Nested" in settings["dataset"]
    ]
    batches = [record for record in trainer.of(Kind.WAIT) if record[2] in nested]
    assert len(nested) == 3
    # 6 items in batches of 2, twice; 2 batches of the stream; and an end for each loader.
    assert len(batches) == 3 + 3 + 2 + 3
    assert {left.pid for left in spools if left.of(Kind.SOURCE_START)} == {trainer.pid}


def test_errors_of_the_job_are_flagged(spools: list[Left]) -> None:
    trainer = trainer_of(spools)
    assert sum(bool(record[8] & Flag.ERROR) for record in trainer.of(Kind.WAIT)) == 5
    assert sum(bool(record[8] & Flag.ERROR) for record in trainer.of(Kind.BACKWARD)) == 1
    assert [record[8] for record in trainer.of(Kind.SYNC)] == [Flag.ERROR]


def test_a_backward_inside_a_backward_belongs_to_it(spools: list[Left]) -> None:
    # gradients 5, the checkpoint 1, the closure at most 4 times, the optimizer that raises 1.
    count = len(trainer_of(spools).of(Kind.BACKWARD))
    assert 5 + 1 + 1 < count <= 5 + 1 + 4 + 1


def test_a_step_that_raised_is_not_a_step(spools: list[Left]) -> None:
    assert trainer_of(spools).steps == 2


def test_saves_carry_size_and_path(spools: list[Left]) -> None:
    trainer = trainer_of(spools)
    saves = [
        (record[2], trainer.texts.get(record[3], b"").decode()) for record in trainer.of(Kind.PAUSE)
    ]
    # Pickling a tensor is a save to memory, too; those came before.
    (in_memory, no_path), (in_file, path), (in_open_file, same), (unknown, missing) = saves[-4:]
    assert 0 < in_memory == in_open_file
    assert in_file > 0
    assert (no_path, unknown) == ("", -1)
    assert (Path(path).name, Path(same).name, Path(missing).name) == ("state.pt", "state.2", "x.pt")
