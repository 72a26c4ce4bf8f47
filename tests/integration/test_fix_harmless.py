"""Under --fix a job computes what it computes without us, and ends as it would."""

import json
import os
import time
from pathlib import Path

import pytest

from fuelline.ingest import read_fixes
from fuelline.schema.diagnosis.fixes import FixEvent
from fuelline.schema.wire import Kind
from tests.integration.harness import Outcome, read_spools, run
from tests.integration.jobs.behaviour import QUESTIONS

pytestmark = pytest.mark.torch

WAYS = ("inline", "fork", "persistent", "iterable-inline", "iterable-fork", "spawn")


def fixed(script: str, *words: str, run_dir: Path, fix: str = "safe") -> Outcome:
    return run(script, *words, run_dir=run_dir, fix=fix)


def events(run_dir: Path, kind: str) -> list[FixEvent]:
    return [event for event in read_fixes(run_dir) if event.event == kind]


@pytest.fixture(scope="module")
def plain() -> Outcome:
    return run("train.py")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    run_dir = tmp_path_factory.mktemp("run")
    return fixed("train.py", run_dir=run_dir), run_dir


@pytest.mark.parametrize("way", WAYS)
def test_a_training_with_nothing_to_fix_computes_the_same(
    plain: Outcome, trained: tuple[Outcome, Path], way: str
) -> None:
    assert trained[0].answer[way] == plain.answer[way]


def test_nothing_is_printed_but_torchs_own_warnings(trained: tuple[Outcome, Path]) -> None:
    own = [line for line in trained[0].errors.splitlines() if line.strip()]
    assert all("UserWarning" in line or "check_worker_number" in line for line in own), own


def test_every_loader_is_served_or_left_with_a_reason(trained: tuple[Outcome, Path]) -> None:
    served, left = (events(trained[1], kind) for kind in ("served", "left"))
    assert len(served) == 3
    assert [event.why for event in left if not event.number][-1].startswith("its workers are star")
    assert sum("iterable" in event.why for event in left) == 2


def test_the_recorder_sees_batches_workers_and_fetches_as_ever(
    trained: tuple[Outcome, Path],
) -> None:
    spools = read_spools(trained[1])
    trainer = max(spools, key=lambda left: len(left.of(Kind.WAIT)))
    assert [left.faults for left in spools] == [0] * len(spools)
    assert sum(record[3] for left in spools for record in left.of(Kind.FETCH)) == 11 * 48
    told = {left.pid for left in spools if left is not trainer and left.of(Kind.FETCH)}
    assert told <= {record[4] for record in trainer.of(Kind.WORKER)}


def test_the_framework_behaves_as_without_us(tmp_path: Path) -> None:
    answers = [run("behaviour.py"), fixed("behaviour.py", run_dir=tmp_path)]
    for question in QUESTIONS:
        assert answers[1].answer[question] == answers[0].answer[question], question
    assert "fuelline" not in answers[1].errors


def test_a_killed_worker_is_replaced_and_named(tmp_path: Path) -> None:
    outcome = fixed("elastic.py", "killed_worker", run_dir=tmp_path)
    assert (outcome.exit_code, outcome.output) == (0, "True\n")
    assert "was killed by SIGKILL; training goes on with 2" in outcome.errors
    assert [event.how for event in events(tmp_path, "lost")] == ["was killed by SIGKILL"]


def test_a_worker_that_ends_by_its_own_fault_fails_the_job_as_torch_does(tmp_path: Path) -> None:
    outcome = fixed("elastic.py", "faults", run_dir=tmp_path)
    told = outcome.output.splitlines()
    words = ["signal: Killed", "signal: Segmentation", "exit code"]
    assert [word in line for word, line in zip(words, told, strict=True)] == [True] * 3


def test_no_worker_outlives_a_killed_trainer(tmp_path: Path) -> None:
    outcome = fixed("elastic.py", "killed_trainer", run_dir=tmp_path)
    pids = json.loads(outcome.output)
    assert outcome.exit_code == -9
    assert len(pids) > 2
    deadline = time.monotonic() + 4  # torch's own watch takes five seconds and more
    while any(_is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if _is_alive(pid)] == []


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_killed_rank_leaves_its_part_to_the_others(tmp_path: Path) -> None:
    outcome = fixed("elastic.py", "killed_rank", run_dir=tmp_path)
    assert outcome.answer == [True, True, False]
    assert events(tmp_path, "change")
    shelf = Path(f"/dev/shm/fuelline-{os.geteuid()}")
    own = {event.pid for event in read_fixes(tmp_path)}
    assert [pid for pid in own if any(shelf.glob(f"*/{pid}-*"))] == []


def test_a_starved_loader_gets_workers_in_mid_epoch(tmp_path: Path) -> None:
    outcome = fixed("elastic.py", "starved", run_dir=tmp_path)
    assert (outcome.exit_code, outcome.output) == (0, "True\n")
    changes = events(tmp_path, "change")
    assert changes
    assert events(tmp_path, "trial")
    workers = {left.pid for left in read_spools(tmp_path) if left.of(Kind.FETCH)}
    most = max(event.active for event in changes)
    assert 1 <= len(workers) <= most


def test_random_numbers_of_an_epoch_are_those_of_the_plain_loader(tmp_path: Path) -> None:
    plain = run("elastic.py", "starved_and_random")
    outcome = fixed("elastic.py", "starved_and_random", run_dir=tmp_path)
    assert outcome.answer[0] == plain.answer[0]
    assert events(tmp_path, "varies")
    late = [event for event in events(tmp_path, "change") if event.active > 1]
    assert [len(epoch) for epoch in outcome.answer] == [300, 300]
    assert late or outcome.answer == plain.answer


def test_a_dataset_that_asks_who_it_is_keeps_its_workers(tmp_path: Path) -> None:
    outcome = fixed("elastic.py", "asks_its_worker", run_dir=tmp_path)
    assert outcome.answer == [0.0, 1.0] * 150
    assert {event.active for event in events(tmp_path, "change")} <= {2}


def test_a_loader_without_workers_gets_some_between_epochs(tmp_path: Path) -> None:
    outcome = fixed("elastic.py", "inline", run_dir=tmp_path)
    assert outcome.output == "[True, True, True]\n"
    first = events(tmp_path, "change")[0]
    assert (first.was, first.active > 0) == ((0, 0), True)


def test_an_iterable_dataset_is_left_alone_unless_allowed(tmp_path: Path) -> None:
    (tmp_path / "safe").mkdir()
    (tmp_path / "order").mkdir()
    outcome = fixed("elastic.py", "stream", run_dir=tmp_path / "safe")
    assert outcome.output == "[True, True, True]\n"
    assert events(tmp_path / "safe", "change") == []
    outcome = fixed("elastic.py", "stream", run_dir=tmp_path / "order", fix="safe,order")
    assert outcome.output == "[True, True, True]\n"
    assert events(tmp_path / "order", "held") or events(tmp_path / "order", "change")


@pytest.mark.parametrize("job", ["no_loader", "nothing_to_fix"])
def test_jobs_with_nothing_to_fix_end_as_without_us(tmp_path: Path, job: str) -> None:
    plain, outcome = run("elastic.py", job), fixed("elastic.py", job, run_dir=tmp_path)
    assert (outcome.exit_code, outcome.output) == (plain.exit_code, plain.output)


def test_a_folder_that_cannot_be_written_costs_the_account_only(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a folder")
    outcome = fixed("elastic.py", "killed_worker", run_dir=tmp_path / "run")
    assert (outcome.exit_code, outcome.output) == (0, "True\n")
