"""A run's folder is followed from before its first spool until after it was compacted."""

from __future__ import annotations

import os
import shutil
import socket
from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline.ingest import RunTail, compact_recording, read_last
from fuelline.ingest.recording.follow import LONGEST_REST, find_rank
from fuelline.ingest.recording.journal import MOST_BLINDS
from fuelline.schema import wire
from fuelline.schema.errors import NotARecordingError
from fuelline.schema.run.recording import RUN_FILE, SPOOL_DIR
from fuelline.schema.run.samples import JOURNAL_NAME, Blind, Limits
from fuelline.schema.wire import Kind
from fuelline.signals.live import LiveRun
from tests.unit.ingest.remains import (
    CREATED_NS,
    JOURNAL,
    PID,
    RUN,
    TID,
    header,
    record,
    snapshot,
    training_records,
    write_run,
)

if TYPE_CHECKING:
    from pathlib import Path

HERE = msgspec.structs.replace(
    RUN, host=socket.gethostname(), ended_ns=None, exit_code=None, launcher_pid=os.getpid()
)


def trainer_header(pid: int = PID) -> bytes:
    return header(TID, pid=pid)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run on this host whose job has not started yet."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / RUN_FILE).write_bytes(msgspec.json.encode(HERE))
    return folder


def add_spool(run_dir: Path, name: str, data: bytes) -> Path:
    (run_dir / SPOOL_DIR).mkdir(exist_ok=True)
    path = run_dir / SPOOL_DIR / name
    path.write_bytes(data)
    return path


def test_a_run_is_followed_from_before_its_first_spool(run_dir: Path) -> None:
    tail = RunTail(run_dir)
    growth = tail.look()
    assert (growth.state, growth.spools, growth.rows) == ("running", [], [])
    body = b"".join(training_records(8))
    add_spool(run_dir, "1-1.spool", trainer_header() + body + bytes(4096))
    (spool,) = tail.look().spools
    assert (spool.pid, spool.trainer_tid) == (PID, TID)
    assert sum(event.kind == Kind.STEP for event in spool.events) == 8
    add_spool(run_dir, "2-1.spool", trainer_header(pid=5) + body)
    first, second = tail.look().spools
    assert (first.events, second.pid) == ([], 5)


def test_looking_changes_nothing_in_the_folder(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run")
    before = snapshot(run_dir)
    RunTail(run_dir).look()
    assert snapshot(run_dir) == before


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotARecordingError, match="not a recording"):
        RunTail(tmp_path)


def test_one_bad_spool_is_a_blindspot_and_the_others_are_followed(run_dir: Path) -> None:
    add_spool(run_dir, "1-1.spool", header(magic=b"NOTOURS!"))
    add_spool(run_dir, "2-1.spool", header() + record(Kind.GC))
    add_spool(run_dir, "notes.txt", b"not a spool at all")
    tail = RunTail(run_dir)
    growth = tail.look()
    assert [len(spool.events) for spool in growth.spools] == [1]
    assert [spot.what for spot in growth.blindspots] == ["the spool 1-1.spool"]
    assert growth.is_counted
    assert len(tail.look().blindspots) == 1


def test_many_blindspots_are_cut_at_a_number_and_counted(tmp_path: Path) -> None:
    many = [Blind(f"thing {each}", "because", "much") for each in range(3000)]
    tail = RunTail(write_run(tmp_path / "run", journal=[*JOURNAL, *many]))
    found = [spot.what for spot in tail.look().blindspots]
    assert len(found) == MOST_BLINDS + 1
    assert found[-1].startswith("2,001 more things")
    assert [spot.what for spot in tail.look().blindspots] == found


def test_what_could_not_be_seen_is_gathered_from_everywhere(tmp_path: Path) -> None:
    records = [*training_records(), record(250)]
    run_dir = write_run(tmp_path / "run", records=records)
    (run_dir / "hooks-failed-77.txt").write_text("ImportError: no torch")
    journal = run_dir / JOURNAL_NAME
    journal.write_bytes(journal.read_bytes() + b"\xff" * 64)
    told = {spot.what for spot in RunTail(run_dir).look().blindspots}
    assert told == {
        "1 records of process 4711",
        "the steps of process 77",
        "wchan",
        "1 frames of the observer's journal",
    }


def test_how_the_job_ended_is_noticed(run_dir: Path) -> None:
    tail = RunTail(run_dir)
    assert tail.look().state == "running"
    ended = msgspec.structs.replace(HERE, ended_ns=CREATED_NS + 10**9, exit_code=3)
    draft = run_dir / ".run.json"
    draft.write_bytes(msgspec.json.encode(ended))
    draft.replace(run_dir / RUN_FILE)
    growth = tail.look()
    assert (growth.state, growth.run.exit_code) == ("ended", 3)


def test_a_run_whose_processes_are_all_gone_is_lost(run_dir: Path) -> None:
    gone = msgspec.structs.replace(HERE, launcher_pid=2**22 + 1)
    (run_dir / RUN_FILE).write_bytes(msgspec.json.encode(gone))
    assert RunTail(run_dir).look().state == "lost"


def test_a_run_of_another_host_is_judged_by_what_it_writes(run_dir: Path) -> None:
    there = msgspec.structs.replace(HERE, host="no-such-host")
    (run_dir / RUN_FILE).write_bytes(msgspec.json.encode(there))
    add_spool(run_dir, "1-1.spool", header() + record(Kind.GC, start_ns=CREATED_NS + 7, dur_ns=2))
    growth = RunTail(run_dir).look()
    assert (growth.state, growth.now_ns) == ("elsewhere", CREATED_NS + 9)
    assert growth.spools[0].is_alive is None


def test_a_spool_that_stands_still_is_read_less_often_and_not_forgotten(run_dir: Path) -> None:
    path = add_spool(run_dir, "1-1.spool", header() + record(Kind.GC))
    tail = RunTail(run_dir)
    looks = [len(tail.look().spools) for _ in range(40)]
    assert looks[0] == 1
    assert sum(looks) < 10
    with path.open("ab") as file:
        file.write(record(Kind.GC))
    told = [spool.events for _ in range(LONGEST_REST + 1) for spool in tail.look().spools]
    assert sum(len(events) for events in told) == 1


def test_the_spool_of_a_trainer_is_read_every_time(run_dir: Path) -> None:
    add_spool(run_dir, "1-1.spool", trainer_header() + record(Kind.GC))
    tail = RunTail(run_dir)
    assert [len(tail.look().spools) for _ in range(20)] == [1] * 20


def test_a_run_that_is_compacted_under_our_eyes_has_nothing_new(run_dir: Path) -> None:
    add_spool(run_dir, "1-1.spool", trainer_header() + record(Kind.GC))
    tail = RunTail(run_dir)
    tail.look()
    shutil.rmtree(run_dir / SPOOL_DIR)
    growth = tail.look()
    assert (growth.spools, growth.blindspots) == ([], [])


def test_the_end_of_a_compacted_run_is_what_somebody_saw_who_watched_it(tmp_path: Path) -> None:
    steps = [
        record(kind, 1, 32, 7, -1, number, start_ns=CREATED_NS + number * 10**8 + at, dur_ns=10**7)
        for number in range(300)
        for at, kind in ((0, Kind.WAIT), (5 * 10**7, Kind.BACKWARD), (7 * 10**7, Kind.STEP))
    ]
    records = [record(Kind.WORKER, 1, 0, 4712), *steps]
    run_dir = write_run(tmp_path / "run", records=records)
    spool = next((run_dir / SPOOL_DIR).glob("*"))
    spool.write_bytes(trainer_header() + spool.read_bytes()[wire.HEADER_BYTES :])
    tail = RunTail(run_dir)
    first = tail.look()
    watched = LiveRun(first)
    compact_recording(run_dir)
    growth = read_last(run_dir)
    assert growth.spools[0].events == first.spools[0].events[-len(growth.spools[0].events) :]
    assert growth.spools[0].workers[0].pid == 4712
    assert any(isinstance(row, Limits) for row in growth.rows)
    (seen,), (kept,) = (run.snapshot(workers=False).ranks for run in (watched, LiveRun(growth)))
    assert kept == msgspec.structs.replace(seen, phase=kept.phase, phase_s=None)
    assert kept.steps == 300
    assert kept.steps_per_s == pytest.approx(10)


def test_a_run_without_any_step_has_an_end_too(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", records=[])
    compact_recording(run_dir)
    growth = read_last(run_dir)
    assert (growth.state, growth.spools, growth.now_ns) == ("ended", [], RUN.started_ns)


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"RANK": "3"}, 3),
        ({}, None),
        ({"RANK": "three"}, None),
        ({"RANK": "3", wire.RUN_DIR_VARIABLE: "/another/run"}, None),
    ],
)
def test_the_rank_is_that_of_the_environment_of_this_run(
    tmp_path: Path, environment: dict[str, str], rank: int | None
) -> None:
    words = {wire.RUN_DIR_VARIABLE: str(tmp_path), **environment}
    (tmp_path / "7").mkdir()
    data = b"\0".join(f"{name}={value}".encode() for name, value in words.items())
    (tmp_path / "7" / "environ").write_bytes(data)
    assert find_rank(7, tmp_path, proc=tmp_path) == rank
    assert find_rank(8, tmp_path, proc=tmp_path) is None
