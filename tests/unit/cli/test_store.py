"""A store that others can reach into is not trusted, and one bad run does not hide the others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline.cli import main
from fuelline.cli.understand.runs import find_running
from fuelline.schema.errors import RefusedError
from fuelline.schema.run.recording import MANIFEST_FILE, RUN_FILE
from fuelline.store import home as store
from fuelline.store.home import saved_chips
from fuelline.store.runs import find_run, list_runs, name_run
from tests.unit.ingest.remains import RUN, write_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(store.HOME_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_fallback_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = store._make_fallback(tmp_path / "fuelline-1")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert store._make_fallback(folder) == folder


def test_a_fallback_that_others_planted_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("")
    for name in ("link", "open", "file"):
        with pytest.raises(RefusedError, match=r"FUELLINE_HOME"):
            store._make_fallback(tmp_path / name)


HOSTILE = {
    "deep": b"[" * 100_000,
    "deep-inside": b'{"run_id":' + b'{"a":' * 100_000,
    "no-utf8": b'{"host":"\xff"}',
    "far-away": msgspec.json.encode(msgspec.structs.replace(RUN, started_wall_ns=10**25)),
    "never-ends": msgspec.json.encode(RUN).replace(b'"version":1', b'"version":' + b"9" * 5000),
}


@pytest.mark.parametrize("name", [RUN_FILE, MANIFEST_FILE])
def test_one_bad_run_does_not_hide_the_others(
    home: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for word, content in HOSTILE.items():
        (home / "runs" / word).mkdir(parents=True)
        (home / "runs" / word / name).write_bytes(content)
    (home / "runs" / "fifo").mkdir()
    os.mkfifo(home / "runs" / "fifo" / name)
    (home / "runs" / "zeros").mkdir()
    (home / "runs" / "zeros" / name).symlink_to("/dev/zero")
    good = msgspec.structs.replace(
        RUN, ended_ns=None, launcher_pid=os.getpid(), host=socket.gethostname()
    )
    write_run(home / "runs" / "a-good", run=good)
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert lines[0].endswith("exit 0")
    assert sum(line.endswith("unreadable") for line in lines) >= 6
    assert find_running() == home / "runs" / "a-good"
    assert find_run("a-g") == home / "runs" / "a-good"


def test_a_link_in_the_store_is_no_run(home: Path) -> None:
    write_run(home / "elsewhere")
    (home / "runs").mkdir()
    (home / "runs" / "planted").symlink_to(home / "elsewhere")
    (home / "runs" / "nowhere").symlink_to("/nonexistent")
    (home / "runs" / "device").symlink_to("/dev/zero")
    assert list_runs() == []


def plant_open(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def plant_open_above(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.parent.chmod(0o777)


def plant_open_before_it_is_there(folder: Path) -> None:
    plant_open(folder.parent)


def plant_foreign(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.chown(folder, 65534, 65534)


def plant_sticky_above(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.parent.chmod(0o1777)
    os.chown(folder.parent, 65534, 65534)


def plant_link(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    (folder.parent / "mine").mkdir()
    folder.symlink_to(folder.parent / "mine")
    os.chown(folder, 65534, 65534, follow_symlinks=False)


PLANTED = [
    plant_open,
    plant_open_above,
    plant_open_before_it_is_there,
    plant_foreign,
    plant_link,
    plant_sticky_above,
]


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("variable", ["HOME", "XDG_DATA_HOME"])
@pytest.mark.integration
def test_a_store_that_others_may_have_planted_is_refused_and_the_job_runs(
    tmp_path: Path, plant: Callable[[Path], None], variable: str
) -> None:
    if plant in (plant_foreign, plant_link, plant_sticky_above) and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    base = tmp_path / ".local/share" if variable == "HOME" else tmp_path / "data"
    plant(base / "fuelline")
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": ""}
    environment.pop(store.HOME_VARIABLE, None)
    if variable == "XDG_DATA_HOME":
        environment[variable] = str(base)
    done = subprocess.run(
        [sys.executable, "-m", "fuelline", "run", "echo", "ran"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "is not a safe place for runs" in done.stderr
    assert "The job runs anyway" in done.stderr
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775])
def test_an_ordinary_home_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.delenv(store.HOME_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    folder = tmp_path / "share" / "fuelline"
    assert store.home_folder() == folder
    for each in (folder.parent, folder):
        each.mkdir()
        each.chmod(mode)
    assert store.home_folder() == folder
    folder.rmdir()
    (tmp_path / "scratch").mkdir()
    folder.symlink_to(tmp_path / "scratch")
    assert store.home_folder() == folder


def test_a_run_is_named_by_its_path_where_the_store_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(home / "run")
    home.chmod(0o777)
    assert name_run(home / "run") == str(home / "run")
    assert main(["diagnose", str(home / "run")]) == 0
    assert main(["runs"]) == RefusedError.exit_code
    assert "FUELLINE_HOME" in capsys.readouterr().err


def test_saved_chips_are_our_own_regular_files(home: Path) -> None:
    folder = home / "chips"
    folder.mkdir()
    (folder / "mine.toml").write_text("")
    (folder / "open.toml").write_text("")
    (folder / "open.toml").chmod(0o666)
    (folder / "link.toml").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo.toml")
    told: list[str] = []
    assert [path.name for path in saved_chips(told.append)] == ["mine.toml"]
    assert len(told) == 3
