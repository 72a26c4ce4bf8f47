"""A store that others can reach into is not trusted, and one bad run does not hide the others."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline.cli import main, store
from fuelline.cli.runs import find_running
from fuelline.cli.store import find_run, list_runs, saved_chips
from fuelline.schema.errors import RefusedError
from fuelline.schema.recording import MANIFEST_FILE, RUN_FILE
from tests.unit.ingest.remains import RUN, write_run

if TYPE_CHECKING:
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


def test_a_link_in_the_store_is_found_only_if_it_is_a_run(home: Path) -> None:
    (home / "runs").mkdir()
    (home / "runs" / "nowhere").symlink_to("/nonexistent")
    (home / "runs" / "device").symlink_to("/dev/zero")
    assert list_runs() == []


def test_saved_chips_are_our_own_regular_files(home: Path) -> None:
    folder = home / "chips"
    folder.mkdir()
    (folder / "mine.toml").write_text("")
    (folder / "open.toml").write_text("")
    (folder / "open.toml").chmod(0o666)
    (folder / "link.toml").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo.toml")
    assert [path.name for path in saved_chips()] == ["mine.toml"]
