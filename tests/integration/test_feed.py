"""`feed` takes over inside real scripts, measures, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.torch

JOB = Path(__file__).parent / "jobs" / "fed.py"


def feed(folder: Path, way: str, *options: str) -> subprocess.CompletedProcess[str]:
    scratch = (
        folder / "t"
    )  # short: torch makes sockets below, whose paths have 107 characters at most
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "fuelline", "feed", "--seconds", "1", *options]
    return subprocess.run(
        [*command, str(JOB), way, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "TMPDIR": str(scratch)},
    )


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"t"}


def is_running(word: str) -> bool:
    """Whether a process with this word on its command line is there."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return any(word in line for line in listed.stdout.splitlines())


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("fed")
    done = feed(folder, "trains", "--step", "20ms", "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_shuffled_loader_is_taken_not_the_one_that_evaluates(
    fed: tuple[Path, dict[str, Any]],
) -> None:
    answer = fed[1]
    assert answer["number"] == 2
    assert [loader["random"] for loader in answer["seen"]] == [False, True]


def test_the_emulated_accelerator_takes_its_time(fed: tuple[Path, dict[str, Any]]) -> None:
    answer = fed[1]
    assert answer["samples"] == 8 * answer["batches"]
    assert answer["batch_seconds"]["value"] >= 0.02
    assert 0 < answer["utilisation"]["value"] <= 1


def test_no_line_of_the_script_runs_after_the_takeover_but_exit_functions_do(
    fed: tuple[Path, dict[str, Any]],
) -> None:
    assert left(fed[0]) == {"left"}


def test_nothing_stays_on_disk_or_running(fed: tuple[Path, dict[str, Any]]) -> None:
    assert list((fed[0] / "t").glob("fuelline*")) == []
    assert not is_running(str(fed[0]))


def test_a_loader_in_fixed_order_is_taken_when_backward_proves_it(tmp_path: Path) -> None:
    done = feed(tmp_path, "ordered")
    assert done.returncode == 0, done.stderr
    assert "samples/s" in done.stdout
    assert left(tmp_path) == {"forward", "left"}


@pytest.mark.parametrize(
    ("way", "options", "words"),
    [
        ("none", (), "never iterated a torch DataLoader"),
        ("evaluates", (), "before it iterated a training loader. It iterated 1. Rows"),
        ("evaluates", (), "`fuelline feed --loader 1 SCRIPT` measures"),
        ("raises", (), "ended (exit code 1) before"),
        ("tensors", (), "trains without a torch DataLoader"),
        ("another torch", (), f"torch {torch.__version__} has no torch.utils.data"),
        ("unpicklable", (), "pickle"),
        ("broken", ("--loader", "1"), "no label for sample"),
    ],
)
def test_what_cannot_be_fed_is_told(
    tmp_path: Path, way: str, options: tuple[str, ...], words: str
) -> None:
    done = feed(tmp_path, way, *options)
    assert done.returncode == 3
    assert words in " ".join(done.stderr.splitlines()[-1:])
    assert "Traceback" not in done.stderr or way == "raises"
    assert not {"checkpoint", "trained"} & left(tmp_path)


def test_options_that_make_no_sense_start_nothing(tmp_path: Path) -> None:
    done = feed(tmp_path, "trains", "--at-least", "90")
    assert done.returncode == 2
    assert "needs an accelerator" in done.stderr
    assert left(tmp_path) == set()


def test_a_recording_that_is_kept_can_be_without_its_command(tmp_path: Path) -> None:
    done = feed(tmp_path, "trains", "--no-command", "--run-dir", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stderr
    assert b"fed.py" not in (tmp_path / "kept" / "run.json").read_bytes()
