"""The list of runs: searched, filtered, and true when runs come, change and vanish."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from fuelline.cli.serve import shelf as shelves
from fuelline.cli.serve.shelf import RunShelf
from fuelline.schema.run.run_folder import RUN_FILE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUELLINE_HOME", str(tmp_path))
    (tmp_path / "runs").mkdir(mode=0o700)
    return tmp_path / "runs"


def record(store: Path, job: str, number: int, exit_code: int | None = 0) -> Path:
    run_dir = store / f"20260412-0930{number:02d}-{job}-{4000 + number}"
    run_dir.mkdir()
    facts = {
        "format": "fuelline-recording",
        "version": 1,
        "run_id": run_dir.name,
        "command": ["python", f"{job}.py"],
        "host": "elsewhere",
        "started_wall_ns": 1_700_000_000_000_000_000 + number * 10**9,
        "started_ns": 0,
        "ended_ns": 10**9,
        "exit_code": exit_code,
        "fuelline_version": "0",
    }
    (run_dir / RUN_FILE).write_text(json.dumps(facts))
    return run_dir


def names(found: dict) -> list[str]:
    return [run.run.split("-")[2] for run in found["runs"]]


def test_runs_are_listed_newest_first_and_found_by_all_words(store: Path) -> None:
    for number, (job, code) in enumerate([("train", 0), ("eval", 1), ("train_big", 0)]):
        record(store, job, number, code)
    shelf = RunShelf()
    shelf.look()
    assert names(shelf.search("", "", 0)) == ["train_big", "eval", "train"]
    assert names(shelf.search("TRAIN 4000", "", 0)) == ["train"]
    assert names(shelf.search("", "failed", 0)) == ["eval"]
    assert shelf.search("nothing", "", 0)["count"] == 0


def test_a_run_that_vanishes_leaves_the_list_and_no_other_folder_can_be_asked_for(
    store: Path,
) -> None:
    kept, gone = record(store, "kept", 1), record(store, "gone", 2)
    shelf = RunShelf()
    shelf.look()
    assert shelf.find(gone.name) == gone
    shutil.rmtree(gone)
    shelf.look()
    assert names(shelf.search("", "", 0)) == ["kept"]
    assert shelf.find(gone.name) is None
    assert shelf.find("../../etc") is None
    assert shelf.find(kept.name) == kept


def test_only_what_has_changed_is_looked_at_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [record(store, f"job{number}", number) for number in range(5)]
    asked: list[str] = []
    describe = shelves.describe
    monkeypatch.setattr(
        shelves, "describe", lambda path, run: (asked.append(run), describe(path, run))[1]
    )
    shelf = RunShelf()
    shelf.look()
    assert len(asked) == 5
    asked.clear()
    os.utime(runs[3], ns=(1, 1))
    shelf.look()
    assert asked == [runs[3].name]


def test_a_long_list_comes_in_parts(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "MOST_SHOWN", 2)
    for number in range(5):
        record(store, f"job{number}", number)
    shelf = RunShelf()
    shelf.look()
    first, last = shelf.search("", "", 0), shelf.search("", "", 4)
    assert (len(first["runs"]), len(last["runs"]), first["count"]) == (2, 1, 5)
