"""`fuelline watch` without a terminal: one plain snapshot, the usual errors, the right run."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline import pipeline
from fuelline.cli import main
from fuelline.cli.record import so_far
from fuelline.ingest import compact_recording
from fuelline.schema.run.recording import RUN_FILE
from fuelline.store.listing import find_running
from fuelline.store.runs import list_runs
from tests.unit.ingest.remains import RUN, write_run
from tests.unit.ingest.test_follow import HERE, trainer_header

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]


def make_run(store: Path, name: str, **facts: object) -> Path:
    run = msgspec.structs.replace(HERE, run_id=name, **facts)
    folder = write_run(store / "runs" / name, run=run)
    spool = next((folder / "spool").glob("*"))
    spool.write_bytes(trainer_header() + spool.read_bytes()[len(trainer_header()) :])
    return folder


def test_into_a_pipe_goes_one_plain_snapshot(capsys: Capture, store: Path) -> None:
    make_run(store, "20260101-running")
    assert main(["watch"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "\x1b" not in said.out
    assert "running for" in said.out
    assert "4711        8" in said.out
    assert "fuelline diagnose" in said.out.splitlines()[-1]


def test_a_run_that_has_ended_says_so_and_shows_its_last_state(
    capsys: Capture, store: Path
) -> None:
    folder = make_run(store, "20260101-ended", ended_ns=RUN.ended_ns, exit_code=0)
    for compact in (False, True):
        if compact:
            compact_recording(folder)
        assert main(["watch", "--once", "--workers"]) == 0
        said = capsys.readouterr().out
        assert "ended with exit code 0 after 1 min 0 s" in said
        assert "4711        8" in said
        assert said.endswith("The diagnosis: fuelline diagnose 20260101-ended\n")


def test_for_programs_there_is_a_snapshot_a_line_until_the_job_has_ended(
    capsys: Capture, store: Path
) -> None:
    make_run(store, "20260101-ended", ended_ns=RUN.ended_ns, exit_code=0)
    for words in (["watch", "--json"], ["watch", "--json", "--once"]):
        assert main(words) == 0
        (line,) = capsys.readouterr().out.splitlines()
        told = json.loads(line)
        assert told["state"] == "ended"
        assert [rank["pid"] for rank in told["ranks"]] == [4711]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["watch"], 3, "No run was recorded yet"),
        (["watch", "no-such-run"], 3, "neither a folder nor a recorded run"),
        (["watch", "/"], 3, "not a recording"),
        (["watch", "--interval", "0.1"], 2, "0.2 to 60"),
        (["watch", "--interval", "often"], 2, "often"),
        (["watch", "--interval", "nan"], 2, "nan"),
    ],
)
@pytest.mark.usefixtures("store")
def test_what_cannot_be_watched_is_said(
    capsys: Capture, words: list[str], code: int, said: str
) -> None:
    try:
        found = main(words)
    except SystemExit as left:
        found = int(left.code or 0)
    assert found == code
    assert said in capsys.readouterr().err


def test_a_run_that_goes_on_is_preferred_to_a_newer_one_that_has_ended(store: Path) -> None:
    assert find_running(list_runs()) is None
    running = make_run(store, "20260101-a")
    make_run(store, "20260102-b", ended_ns=5, exit_code=0)
    make_run(store, "20260103-c", launcher_pid=2**22 + 1)
    make_run(store, "20260104-d", host="no-such-host")
    damaged = make_run(store, "20260105-e")
    (damaged / RUN_FILE).write_text("{")
    assert find_running(list_runs()) == running


def test_a_watched_run_that_is_compacted_keeps_its_last_state(store: Path) -> None:
    folder = make_run(store, "20260101-a", launcher_pid=os.getpid(), host=socket.gethostname())
    watch = pipeline.RunWatch(folder)
    (before,) = watch.snapshot(workers=False).ranks
    ended = msgspec.structs.replace(HERE, ended_ns=RUN.ended_ns, exit_code=7)
    (folder / RUN_FILE).write_bytes(msgspec.json.encode(ended))
    compact_recording(folder)
    for _ in range(2):
        watch.look()
        shown = watch.snapshot(workers=False)
        assert (shown.state, shown.run.exit_code) == ("ended", 7)
        assert shown.ranks[0].steps == before.steps == 8


def test_a_run_outside_the_store_is_named_by_its_folder(
    capsys: Capture, store: Path, tmp_path: Path
) -> None:
    folder = make_run(store, "20260101-a").rename(tmp_path / "elsewhere")
    assert main(["watch", str(folder)]) == 0
    assert capsys.readouterr().out.endswith(f"fuelline diagnose {folder}\n")


def test_a_run_over_several_hosts_shows_the_ranks_of_all_that_have_joined(
    capsys: Capture, store: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "shared"
    run_dir.mkdir()
    (run_dir / "node-0").mkdir()
    (run_dir / "node-1").mkdir()
    assert main(["watch", str(run_dir)]) == 3
    assert "none is a recording yet" in capsys.readouterr().err
    (run_dir / "node-1").rmdir()
    make_run(store, "second", host="no-such-host").rename(run_dir / "node-1")
    watch = pipeline.RunWatch(run_dir)
    shown = watch.snapshot(workers=False)
    assert (len(shown.ranks), shown.state) == (1, "elsewhere")
    (run_dir / "node-0").rmdir()
    make_run(store, "first").rename(run_dir / "node-0")
    watch.look()
    watch.look_at_all()
    shown = watch.snapshot(workers=False)
    assert [row.steps for row in shown.ranks] == [8, 8]
    assert (shown.run.run_id, shown.state) == ("first", "running")
    assert [spot.what for spot in shown.blindspots] == ["wchan"]


def test_the_verdict_so_far_is_that_of_the_diagnosis(capsys: Capture, store: Path) -> None:
    run = make_run(store, "20260101-running")
    assert main(["watch"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    sentence = pipeline.diagnose_run(run).verdict.sentence
    assert "Verdict so far: " in shown
    assert sentence[:60] in shown


def test_a_verdict_is_asked_for_again_only_after_a_rest(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    now = [100.0]
    monkeypatch.setattr(so_far.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(so_far.VerdictSoFar, "_ask", lambda self: asked.append(now[0]))
    verdict = so_far.VerdictSoFar(store)
    verdict._due_s = 130.0
    for now[0] in (100.0, 129.0, 131.0):
        verdict.follow(store, is_over=False)
    assert asked == [131.0]
    verdict._due_s = 1000.0
    verdict.follow(store / "another", is_over=False)
    assert asked == [131.0, 131.0]
