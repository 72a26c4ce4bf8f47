"""`torch.compile` gives the same results and does the same work as without us."""

from pathlib import Path

import pytest

from fuelline.schema.wire import Kind
from tests.integration.harness import Outcome, read_spools, run, trainer_of

pytestmark = pytest.mark.torch

CASES = (
    "model-eager",
    "model-aot",
    "step",
    "step-fullgraph",
    "backward-method",
    "backward-function",
    "move-plain",
    "move-mode",
    "move-device",
)


@pytest.fixture(scope="module")
def plain() -> Outcome:
    return run("compiled.py")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def recorded(run_dir: Path) -> Outcome:
    return run("compiled.py", run_dir=run_dir)


@pytest.fixture(scope="module")
def accelerated_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("accelerated")


@pytest.fixture(scope="module")
def accelerated(accelerated_dir: Path) -> Outcome:
    return run("compiled.py", "accelerated", run_dir=accelerated_dir)


@pytest.mark.parametrize("case", CASES)
def test_device_hooks_change_neither_results_nor_graphs(
    plain: Outcome, accelerated: Outcome, case: str
) -> None:
    assert accelerated.answer[case] == plain.answer[case]


def test_device_hooks_were_at_work(accelerated: Outcome, accelerated_dir: Path) -> None:
    assert accelerated.exit_code == 0
    trainer = trainer_of(read_spools(accelerated_dir))
    assert trainer.faults == 0
    assert len(trainer.of(Kind.MARK)) > 20


@pytest.mark.parametrize("case", CASES)
def test_results_are_the_same(plain: Outcome, recorded: Outcome, case: str) -> None:
    assert recorded.answer[case]["answer"] == plain.answer[case]["answer"]


@pytest.mark.parametrize("case", CASES)
def test_dynamo_compiles_the_same_frames(plain: Outcome, recorded: Outcome, case: str) -> None:
    assert recorded.answer[case]["frames"] == plain.answer[case]["frames"] != []


def test_backward_of_a_compiled_model_is_recorded(recorded: Outcome, run_dir: Path) -> None:
    assert recorded.exit_code == 0
    assert "fuelline" not in recorded.errors
    trainer = trainer_of(read_spools(run_dir))
    assert trainer.faults == 0
    # A whole optimizer step in one graph is more than dynamo can do: it raises at the first step.
    assert recorded.answer["step-fullgraph"]["answer"] == "Unsupported"
    assert len(trainer.of(Kind.BACKWARD)) == 3 + 3 + 5 + 1 + 13 + 13
