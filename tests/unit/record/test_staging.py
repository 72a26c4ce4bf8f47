"""A run on a network's disk is recorded beside the job, found there meanwhile, and brought home."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from fuelline.ingest.recording import follow
from fuelline.ingest.recording.folder import load_recording, locate_recording
from fuelline.record import launch, staging
from fuelline.record.staging import bring_home, bring_home_apart, stage
from fuelline.schema.run.recording import RUN_FILE
from fuelline.schema.wire import RUN_DIR_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

JOB = f"""
import os, pathlib
folder = pathlib.Path(os.environ["{RUN_DIR_VARIABLE}"])
(folder / "left-by-the-job").write_text(str(folder))
"""


def write_mounts(tmp_path: Path, *slow: Path) -> Path:
    lines = ["27 1 254:0 / / rw - ext4 /dev/vda rw"]
    lines += [f"30 27 0:40 / {point} rw - nfs4 server:/d rw" for point in slow]
    (tmp_path / "mountinfo").write_text("\n".join(lines))
    return tmp_path / "mountinfo"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A far folder and a near one."""
    far, near = tmp_path / "far", tmp_path / "near"
    far.mkdir()
    near.mkdir()
    monkeypatch.setenv("TMPDIR", str(near))
    return far, near


def test_only_a_run_on_a_slow_mount_is_staged(
    tmp_path: Path, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    far, near = places
    mounts = write_mounts(tmp_path, far)
    assert stage(near / "run", mounts) is None
    staged = stage(far / "run", mounts)
    assert staged is not None
    assert (staged.parent, staged.stat().st_mode & 0o777) == (near, 0o700)
    monkeypatch.setattr(staging, "_PLACES", ())
    assert stage(far / "run", write_mounts(tmp_path, far, near)) is None


@pytest.fixture
def staged_run(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where a run is to be, and where it is recorded, in whatever `launch` does next."""
    far, near = places
    mounts = write_mounts(far.parent, far)
    monkeypatch.setattr(launch, "stage", lambda run_dir: stage(run_dir, mounts))
    return far / "run", near


def test_the_job_records_nearby_and_the_run_ends_in_its_place(
    staged_run: tuple[Path, Path],
) -> None:
    run_dir, near = staged_run
    outcome = launch.launch([sys.executable, "-c", JOB], run_dir)
    assert outcome == launch.JobOutcome(0)
    assert (run_dir / "left-by-the-job").read_text().startswith(str(near))
    facts = json.loads((run_dir / RUN_FILE).read_text())
    assert (facts["exit_code"], facts.get("staged_in")) == (0, None)
    assert list(near.iterdir()) == []


def test_a_job_that_cannot_start_leaves_neither_folder(staged_run: tuple[Path, Path]) -> None:
    run_dir, near = staged_run
    with pytest.raises(launch.InputError):
        launch.launch(["/nonexistent/python"], run_dir)
    assert not run_dir.exists()
    assert list(near.iterdir()) == []


def test_a_run_that_is_deleted_meanwhile_stays_so(staged_run: tuple[Path, Path]) -> None:
    run_dir, near = staged_run
    job = f"import shutil; shutil.rmtree({str(run_dir)!r})"
    outcome = launch.launch([sys.executable, "-c", job], run_dir)
    assert outcome.problem == f"{run_dir} was removed while the job ran"
    assert not run_dir.exists()
    assert list(near.iterdir()) == []


def test_what_cannot_be_brought_home_is_kept(tmp_path: Path) -> None:
    staged, run_dir = tmp_path / "staged", tmp_path / "run"
    staged.mkdir()
    (staged / RUN_FILE).write_text("{}")
    run_dir.write_text("no folder")
    assert bring_home(staged, run_dir, RUN_FILE) is not None
    assert (staged / RUN_FILE).exists()


def test_a_server_that_does_not_answer_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "bring_home", lambda *_: signal.pause())
    monkeypatch.setattr(staging, "LONGEST_S", 0.2)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGUSR1})
    try:
        assert "took over" in (bring_home_apart(tmp_path, tmp_path, "x", [signal.SIGUSR1]) or "")
        signal.raise_signal(signal.SIGUSR1)
        said = bring_home_apart(tmp_path, tmp_path, "x", [signal.SIGUSR1])
        assert said == "copying was interrupted"
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def test_a_run_that_could_not_be_moved_says_where_it_is(
    staged_run: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, near = staged_run
    monkeypatch.setattr(launch, "bring_home_apart", lambda *_: "no room")
    outcome = launch.launch([sys.executable, "-c", "pass"], run_dir)
    assert outcome.left_in is not None
    assert (outcome.left_in[0].parent, outcome.left_in[1]) == (near, "no room")
    assert locate_recording(run_dir) == outcome.left_in[0]


def test_staging_can_be_left_out(staged_run: tuple[Path, Path]) -> None:
    run_dir, near = staged_run
    launch.launch([sys.executable, "-c", JOB], run_dir, stages=False)
    assert (run_dir / "left-by-the-job").read_text() == str(run_dir)
    assert list(near.iterdir()) == []


def test_why_a_folder_cannot_be_written_is_told_before_the_job(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    told: list[str] = []
    mark = tmp_path / "mark"
    job = f"open({str(mark)!r}, 'w')"
    outcome = launch.launch(
        [sys.executable, "-c", job],
        tmp_path / "file" / "run",
        say=lambda problem: told.append(f"{problem} {mark.exists()}"),
    )
    assert told == [f"{outcome.problem} False"]
    assert mark.exists()


def write_run(folder: Path, run_id: str, staged_in: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    host = os.uname().nodename
    facts = {"format": "fuelline-recording", "run_id": run_id, "command": ["x"], "host": host}
    times = {"started_wall_ns": 1, "started_ns": 1, "staged_in": staged_in}
    (folder / RUN_FILE).write_text(json.dumps({**facts, **times}))
    return folder


def test_a_staged_recording_is_found_by_its_run(tmp_path: Path) -> None:
    near = write_run(tmp_path / "near", "a")
    assert locate_recording(write_run(tmp_path / "far", "a", str(near))) == near


@pytest.mark.parametrize("lie", ["other run", "others can write", "a link", "relative", "zero"])
def test_the_word_of_a_foreign_run_leads_nowhere(tmp_path: Path, lie: str) -> None:
    near = write_run(tmp_path / "near", "b" if lie == "other run" else "a")
    near.chmod(0o777 if lie == "others can write" else 0o700)
    (tmp_path / "link").symlink_to(near)
    words = {"a link": str(tmp_path / "link"), "relative": "near", "zero": "/x\0y"}
    far = write_run(tmp_path / "far", "a", words.get(lie, str(near)))
    assert locate_recording(far) == far


def test_from_another_host_a_staged_run_says_where_it_is(tmp_path: Path) -> None:
    far = write_run(tmp_path / "far", "a", "/var/tmp/fuelline-run-elsewhere")
    (spot, *_) = load_recording(far).blindspots
    assert "/var/tmp/fuelline-run-elsewhere" in spot.why


def test_who_watches_follows_a_recording_home(tmp_path: Path) -> None:
    near = write_run(tmp_path / "near", "a")
    far = write_run(tmp_path / "far", "a", str(near))
    tail = follow.RunTail(far)
    tail.look()
    assert bring_home(near, far, RUN_FILE) is None
    facts = json.loads((far / RUN_FILE).read_text())
    (far / RUN_FILE).write_text(json.dumps({**facts, "ended_ns": 2, "exit_code": 0}))
    assert tail.look().state == "ended"
