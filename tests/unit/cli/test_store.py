"""A store that others can reach into is not trusted, and one bad run does not hide the others."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline.cli import main
from fuelline.schema.errors import NotARecordingError, RefusedError
from fuelline.schema.run.recording import MANIFEST_FILE, RUN_FILE
from fuelline.store import elsewhere
from fuelline.store import home as store
from fuelline.store.home import saved_chips
from fuelline.store.listing import find_running
from fuelline.store.runs import find_run, list_runs, name_run, note_run
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
    assert lines[0].split() == ["run", "took", "samples/s", "size", "verdict"]
    assert sum("unreadable" in line for line in lines) >= 6
    assert sum(line.startswith("  a-good") for line in lines) == 1
    assert find_running(list_runs()) == home / "runs" / "a-good"
    assert find_run("a-g") == home / "runs" / "a-good"


def start_run(folder: Path, started_s: int, **more: object) -> Path:
    return write_run(
        folder, run=msgspec.structs.replace(RUN, started_wall_ns=started_s * 10**9, **more)
    )


def test_the_last_run_is_the_one_started_last_wherever_it_is(home: Path, tmp_path: Path) -> None:
    start_run(home / "runs" / "zz-copied-from-elsewhere", 100)
    newest = start_run(home / "runs" / "20260412-093015-train-1", 300)
    start_run(home / "runs" / "20260412-093015-train-2", 200)
    assert find_run(None) == newest
    outside = start_run(tmp_path / "mine" / "r42", 400)
    assert find_run(None) == newest
    note_run(outside, "sweep")
    assert find_run(None) == outside
    assert find_run("sweep") == outside
    shutil.rmtree(outside)
    assert find_run(None) == newest


def test_a_run_that_says_it_starts_in_the_future_is_not_the_last_for_ever(home: Path) -> None:
    made_up = start_run(home / "runs" / "planted", 4_000_000_000)
    os.utime(made_up, (1000, 1000))
    real = start_run(home / "runs" / "20260412-093015-train-2", 2000)
    assert find_run(None) == real


def test_a_note_that_cannot_be_written_is_left_out(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = start_run(tmp_path / "r42", 400)
    (home / "elsewhere").write_text("a file where the folder would be")
    note_run(outside, "sweep")
    monkeypatch.setenv(store.HOME_VARIABLE, "/proc/nowhere")
    note_run(outside, "sweep")
    assert list_runs() == []


def test_notes_of_others_making_lead_nowhere(home: Path, tmp_path: Path) -> None:
    notes = home / "elsewhere"
    notes.mkdir()
    (notes / "relative").write_bytes(b"runs/x")
    (notes / "zero").write_bytes(b"/tmp/\0")
    (notes / "empty").write_bytes(b"")
    (notes / "link").symlink_to("/dev/zero")
    os.mkfifo(notes / "fifo")
    (notes / "no-run").write_bytes(os.fsencode(tmp_path))
    assert list_runs() == []


def test_only_the_newest_notes_are_kept(home: Path, tmp_path: Path) -> None:
    for number in range(elsewhere.MOST_NOTES + 3):
        elsewhere.note_elsewhere(f"2026-{number:04}", tmp_path / str(number))
    names = sorted(path.name for path in (home / "elsewhere").iterdir())
    assert len(names) == elsewhere.MOST_NOTES
    assert names[0] == "2026-0003"


def test_a_job_s_name_means_its_newest_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_run(home / "runs" / "20260412-093015-images-1", 100)
    newest = start_run(home / "runs" / "20260413-093015-images-2", 200)
    start_run(home / "runs" / "20260414-093015-images_more-3", 300)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()  # of data
    (tmp_path / "images.py").write_text("")
    for word in ("images", "images.py", "20260413"):
        assert find_run(word) == newest
    with pytest.raises(NotARecordingError, match="fits 3 runs"):
        find_run("2026041")


def delete(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["runs", *words])
    output = capsys.readouterr()
    return code, output.out + output.err


def test_runs_are_deleted_by_id_by_age_and_by_number(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = time.time_ns() // 10**9
    ages_days = (40, 31, 20, 2, 1)
    runs = [
        start_run(home / "runs" / f"20260412-0930{n}-train-{n}", now_s - 86400 * age)
        for n, age in enumerate(ages_days)
    ]
    assert delete(capsys, "--prune", "30d")[0] == 4  # nobody is here to be asked
    assert all(run.exists() for run in runs)
    assert delete(capsys, "--prune", "30d", "--yes")[0] == 0
    assert [run.exists() for run in runs] == [False, False, True, True, True]
    assert delete(capsys, "--delete", runs[3].name, "--yes")[0] == 0
    assert [run.exists() for run in runs] == [False, False, True, False, True]
    assert delete(capsys, "--keep", "1", "--yes")[0] == 0
    assert list_runs() == [runs[4]]
    code, said = delete(capsys, "--delete", "nothing", "--yes")
    assert code == 3
    assert "Nothing was deleted" in said


def test_what_is_not_a_run_of_ours_is_never_deleted(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    assert delete(capsys, "--delete", str(data), "--yes")[0] == 3
    unknown = start_run(tmp_path / "somebody's", 100)
    assert delete(capsys, "--delete", str(unknown), "--yes")[0] == 3
    mixed = start_run(tmp_path / "out", 100)
    (mixed / "checkpoint.pt").write_text("a week of training")
    note_run(mixed, "train")
    code, said = delete(capsys, "--delete", str(mixed), "--yes")
    assert code == 4
    assert "checkpoint.pt" in said
    running = start_run(
        home / "runs" / "20260412-093015-train-1",
        100,
        ended_ns=None,
        exit_code=None,
        launcher_pid=os.getpid(),
        host=socket.gethostname(),
    )
    code, said = delete(capsys, "--keep", "0", "--yes")
    assert code == 4
    assert "still being recorded" in said
    assert all(path.exists() for path in (data, unknown, mixed / "checkpoint.pt", running))


def test_two_runs_of_one_job_are_not_deleted_by_its_name(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_run(home / "runs" / "20260412-093015-train-1", 100)
    start_run(home / "runs" / "20260412-093016-train-2", 200)
    code, said = delete(capsys, "--delete", "train", "--yes")
    assert code == 3
    assert "fits 2 runs" in said
    assert len(list_runs()) == 2


def test_the_list_shows_what_a_run_came_to_once_it_was_diagnosed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(home / "runs" / "20260412-093015-train-1")
    main(["runs"])
    assert "not diagnosed" in capsys.readouterr().out
    main(["diagnose"])
    capsys.readouterr()
    main(["runs", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert [run["run"] for run in listed] == ["20260412-093015-train-1"]
    assert listed[0]["state"] == "ok"
    assert listed[0]["size_bytes"] > 0
    assert listed[0]["verdict"]["words"]


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
