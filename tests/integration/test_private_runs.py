"""What a run leaves behind: for its owner alone, and without the secrets of its command line."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuelline.cli import main
from tests.integration.harness import JOBS

KEY = "Xq7Lr2Vw9Kp4Zt8B"


def record(store: Path, *options: str, key: str = KEY) -> Path:
    command = [sys.executable, "-m", "fuelline", "run", *options, str(JOBS / "tiny.py")]
    environment = {**os.environ, "FUELLINE_HOME": str(store), "FUELLINE_KEY_OF_TEST": KEY}
    previous = os.umask(0o022)
    try:
        subprocess.run(
            [*command, "--api-key", key], env=environment, check=True, capture_output=True
        )
    finally:
        os.umask(previous)
    (run,) = (store / "runs").iterdir()
    return run


def modes(folder: Path) -> Iterator[tuple[str, int]]:
    for path in (folder, *folder.rglob("*")):
        yield str(path.relative_to(folder)), stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("options", [(), ("--quiet",), ("--fix",), ("--zoom", "2@5")])
def test_a_run_is_for_its_owner_alone_and_holds_no_secret(
    store: Path, options: tuple[str, ...]
) -> None:
    run = record(store, *options)
    assert KEY not in run.name
    loose = {name: oct(mode) for name, mode in modes(store) if mode & 0o077}
    assert {name: mode for name, mode in loose.items() if not name.endswith(".spool")} == {}
    for path in run.rglob("*"):
        assert KEY not in path.name
        if path.is_file():
            assert KEY.encode() not in path.read_bytes()


def test_a_run_without_its_command_is_named_by_its_id(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = record(store, "--no-command")
    assert b"--api-key" not in (run / "manifest.json").read_bytes()
    assert b"tiny.py" not in (run / "run.json").read_bytes()
    assert main(["diagnose", str(run)]) == 0
    assert main(["runs"]) == 0
    assert run.name in capsys.readouterr().out
