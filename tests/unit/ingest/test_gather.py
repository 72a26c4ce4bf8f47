"""The raw remains of a run: one bad file costs that file and is said."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fuelline.ingest.recording import gather as gathering
from fuelline.ingest.recording.gather import UncompactedRun, decode_note, gather
from fuelline.ingest.recording.journal import MOST_BLINDS
from fuelline.schema.errors import NewerRecordingError
from fuelline.schema.run.journal import encode_frame
from fuelline.schema.run.recording import DAMAGED, SPOOL_DIR
from fuelline.schema.run.samples import JOURNAL_NAME, Blind, HostSample, ThreadState
from fuelline.schema.wire import Kind
from fuelline.timeline.tables import TABLES
from tests.unit.ingest.remains import (
    CREATED_NS,
    JOURNAL,
    PID,
    RUN,
    header,
    record,
    text,
    training_records,
    write_run,
)


def unlink_and_mkdir(path: Path) -> None:
    path.unlink()
    path.mkdir()


def whats(remains: UncompactedRun) -> str:
    return " | ".join(spot.what for spot in remains.blindspots)


def test_all_tables_are_there_with_their_columns(tmp_path: Path) -> None:
    tables = gather(write_run(tmp_path / "run")).tables
    for name, columns in TABLES.items():
        assert dict(tables[name].schema) == dict(columns)


def test_an_empty_run_has_empty_tables_and_says_so(tmp_path: Path) -> None:
    remains = gather(write_run(tmp_path / "run", records=[], journal=[]))
    assert all(frame.height == 0 for frame in remains.tables.values())
    assert "thread states" in whats(remains)


def test_a_folder_without_anything_is_read_as_well(tmp_path: Path) -> None:
    assert gather(tmp_path).tables["events"].height == 0


def test_many_blindspots_are_cut_at_a_number_and_counted(tmp_path: Path) -> None:
    many = [Blind(f"thing {each % 20_000}", "because", "much") for each in range(20_500)]
    started_s = time.monotonic()
    remains = gather(write_run(tmp_path / "run", journal=[*JOURNAL, *many]))
    assert time.monotonic() - started_s < 20  # it took minutes
    assert len(remains.blindspots) < MOST_BLINDS + 10
    assert "thing 0 |" in whats(remains)
    (more,) = (spot for spot in remains.blindspots if spot.what.startswith("19,"))
    assert "more things" in more.what


def test_many_blindspots_of_a_spool_are_cut_as_well(tmp_path: Path) -> None:
    records: list[bytes] = []
    for each in range(1, MOST_BLINDS + 8):
        note = msgspec.json.encode({"what": f"part {each}", "why": "w", "forbids": "f"}).decode()
        records += [*text(each, note), record(Kind.BLINDSPOT, each)]
    remains = gather(write_run(tmp_path / "run", records=records))
    assert "part 1 |" in whats(remains)
    assert "part 1007" not in whats(remains)
    assert remains.left_out == 7 + 1  # the journal tells one


NOTE = msgspec.json.encode({"what": "part", "why": "w" * 60_000, "forbids": "f"}).decode()


@pytest.mark.parametrize("kind", [Kind.BLINDSPOT, Kind.SOURCE, Kind.PROCESS, Kind.PAUSE, Kind.ZOOM])
def test_a_text_that_very_many_records_name_is_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """In a spool of 28 MB it was 430,000 times, for minutes."""
    decoded: list[object] = []

    def decode(text: str | None, noun: type[object]) -> object:
        decoded.append(noun)
        return decode_note(text, noun)

    monkeypatch.setattr(gathering, "decode_note", decode)
    records = [*text(1, NOTE), *[record(kind, 1, 1, each) for each in range(2000)]]
    remains = gather(write_run(tmp_path / "run", records=records))
    assert len(decoded) <= 1
    assert ("part" in whats(remains)) == (kind == Kind.BLINDSPOT)


def test_a_text_longer_than_any_recorder_writes_is_left_out(tmp_path: Path) -> None:
    long = NOTE.replace("w" * 60_000, "w" * 70_000)
    records = [*text(1, long), record(Kind.BLINDSPOT, 1), *text(2, NOTE), record(Kind.SOURCE, 5, 1)]
    remains = gather(write_run(tmp_path / "run", records=records))
    assert "part" not in whats(remains)
    assert [loader.loader_id for loader in remains.loaders] == [5]


def test_a_job_that_makes_loaders_without_end_keeps_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MOST_LOADERS", 3)
    records = [*text(1, "{}"), *[record(Kind.SOURCE, each, 1) for each in range(1, 11)]]
    remains = gather(write_run(tmp_path / "run", records=records))
    assert [loader.loader_id for loader in remains.loaders] == [1, 2, 3]
    assert "the settings of 7 more loaders" in whats(remains)


def test_texts_become_facts_and_no_events(tmp_path: Path) -> None:
    remains = gather(write_run(tmp_path / "run"))
    (loader,) = remains.loaders
    assert (loader.pid, loader.loader_id, loader.num_workers) == (PID, 1, 2)
    assert loader.dataset == "Photos"
    (process,) = remains.processes
    assert (process.framework, process.version, process.threads) == ("torch", "2.13.0", 4)
    noted = {Kind.SOURCE, Kind.PROCESS, Kind.BLINDSPOT, Kind.TEXT}
    assert not noted & set(remains.tables["events"]["kind"])


def test_a_loader_whose_settings_were_lost_is_still_a_loader(tmp_path: Path) -> None:
    records = [
        *text(1, '{"num_workers": "many"}'),
        record(Kind.SOURCE, 3, 1),
        record(Kind.SOURCE, 4, 9),
    ]
    remains = gather(write_run(tmp_path / "run", records=records))
    assert [(loader.loader_id, loader.num_workers) for loader in remains.loaders] == [
        (3, None),
        (4, None),
    ]


def test_fields_of_a_newer_recorder_are_ignored(tmp_path: Path) -> None:
    records = [*text(1, '{"num_workers": 2, "colour": "red"}'), record(Kind.SOURCE, 3, 1)]
    (loader,) = gather(write_run(tmp_path / "run", records=records)).loaders
    assert loader.num_workers == 2


def test_the_same_blindspot_of_many_workers_is_said_once(tmp_path: Path) -> None:
    spot = '{"what": "run-queue delay", "why": "no schedstat", "forbids": "PR202"}'
    run = write_run(tmp_path / "run", records=[*text(1, spot), record(Kind.BLINDSPOT, 1)])
    for pid in (5001, 5002):
        body = b"".join([*text(1, spot), record(Kind.BLINDSPOT, 1)])
        (run / SPOOL_DIR / f"{pid}.spool").write_bytes(header(pid=pid) + body)
    assert whats(gather(run)).count("run-queue delay") == 1


def test_dropped_and_damaged_records_are_blindspots_with_their_number(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    page = header(0, 12, pid=6000)
    (run / SPOOL_DIR / "6000.spool").write_bytes(page + record(99) + record(98))
    codes = {spot.what: spot.code for spot in gather(run).blindspots}
    assert codes["12 records of process 6000"] == ""
    assert codes["2 records of process 6000"] == DAMAGED


def test_a_foreign_spool_costs_only_itself(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    whole = gather(run).tables["events"].height
    (run / SPOOL_DIR / "foreign.spool").write_bytes(b"PK\3\4" + bytes(9000))
    (run / SPOOL_DIR / "folder.spool").mkdir()
    (run / SPOOL_DIR / "notes.txt").write_text("not a spool")
    remains = gather(run)
    assert remains.tables["events"].height == whole
    said = whats(remains)
    assert all(name in said for name in ("foreign.spool", "folder.spool"))
    assert "notes.txt" not in said
    assert remains.is_damaged


def test_a_newer_spool_is_refused_with_its_path_and_a_next_step(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / SPOOL_DIR / "newer.spool").write_bytes(header(version=99))
    with pytest.raises(NewerRecordingError, match=r"newer\.spool .*99.*pip install -U fuelline"):
        gather(run)


def test_the_end_of_a_spool_that_was_cut_off_is_missed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / SPOOL_DIR / f"{PID}.spool"
    assert not gather(run, RUN).is_damaged
    path.write_bytes(path.read_bytes()[:-1000])
    remains = gather(run, RUN)
    assert f"the spool {PID}.spool" in whats(remains)
    assert remains.is_damaged


def test_a_run_that_did_not_end_lasted_until_somebody_wrote_last(tmp_path: Path) -> None:
    late = record(Kind.WAIT, start_ns=CREATED_NS + 10**12)
    facts = msgspec.structs.replace(RUN, ended_ns=None)
    run = write_run(tmp_path / "run", run=facts, records=[late])
    whole = gather(run, facts)
    assert (whole.tables["events"].height, whole.is_damaged) == (1, False)
    for path in run.rglob("*"):
        at_ns = RUN.started_wall_ns + 9 * 10**9
        os.utime(path, ns=(at_ns, at_ns))
    short = gather(run, facts)
    assert (short.tables["events"].height, short.is_damaged) == (0, True)
    assert f"1 records of process {PID}" in whats(short)


def test_a_wall_clock_that_was_set_back_makes_no_damage(tmp_path: Path) -> None:
    facts = msgspec.structs.replace(RUN, ended_ns=None, started_wall_ns=2**62)
    assert not gather(write_run(tmp_path / "run"), facts).is_damaged


@pytest.mark.parametrize("harm", [lambda path: path.write_bytes(b"x" * 999), unlink_and_mkdir])
def test_a_journal_that_is_none_is_named_and_not_called_absent(
    tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    run = write_run(tmp_path / "run")
    harm(run / JOURNAL_NAME)
    remains = gather(run)
    (spot,) = (spot for spot in remains.blindspots if "thread states" in spot.what)
    assert JOURNAL_NAME in spot.why
    assert remains.is_damaged


def test_events_of_all_processes_are_in_one_table_in_order(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    body = b"".join(training_records(3))
    (run / SPOOL_DIR / "5000.spool").write_bytes(header(pid=5000) + body)
    events = gather(run).tables["events"]
    assert set(events["pid"]) == {PID, 5000}
    assert events.equals(events.sort("pid", "tid", "start_ns"))


def test_host_values_become_one_row_each(tmp_path: Path) -> None:
    host = gather(write_run(tmp_path / "run")).tables["host"]
    assert sorted(host.iter_rows()) == [
        (CREATED_NS + 1, "cpu.busy_ns", 12.0),
        (CREATED_NS + 1, "psi.io.some_us", 4.0),
    ]


def test_a_journal_cut_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    state = ThreadState(CREATED_NS, PID, PID, 1, "read", "read", 0, 7)
    journal = encode_frame(JOURNAL) + encode_frame([state])
    for cut in range(0, len(journal), 13):
        (run / JOURNAL_NAME).write_bytes(journal[:cut])
        assert gather(run).tables["states"].height <= 1
    (run / JOURNAL_NAME).write_bytes(journal)
    assert gather(run).tables["states"]["count"].sum() == 27


def test_a_damaged_frame_is_said_and_the_rest_is_kept(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    frame = bytearray(encode_frame([HostSample(1, {"x": 1.0})]))
    frame[-1] ^= 0xFF
    (run / JOURNAL_NAME).write_bytes(bytes(frame) + encode_frame(JOURNAL))
    remains = gather(run)
    assert "1 frames of the observer's journal" in whats(remains)
    assert remains.tables["states"].height == 1


def test_what_the_observer_could_not_see_is_a_blindspot(tmp_path: Path) -> None:
    remains = gather(write_run(tmp_path / "run"))
    assert "wchan" in whats(remains)
    assert remains.limits[0].quota_cores == 1.5


@pytest.mark.parametrize(
    ("part", "what"), [("hooks", "the steps of"), ("remedies", "the remedies in")]
)
def test_a_process_that_we_could_not_enter_is_a_blindspot(
    tmp_path: Path, part: str, what: str
) -> None:
    (tmp_path / f"{part}-failed-42.txt").write_text("torch: ImportError('odd build')\n")
    spots = [spot for spot in gather(tmp_path).blindspots if "process 42" in spot.what]
    assert [spot.why for spot in spots] == ["torch: ImportError('odd build')"]
    assert spots[0].what.startswith(what)


def test_devices_become_one_row_a_value_and_the_last_word_about_each(tmp_path: Path) -> None:
    remains = gather(write_run(tmp_path / "run"))
    (seen,) = remains.devices
    assert seen.refusals == {"gpm": "none"}
    assert remains.tables["devices"].rows() == [
        (CREATED_NS + 1, "gpu0", "util.gpu_frac", 0.95),
        (CREATED_NS + 1, "gpu0", "clock.sm_hz", 1.98e9),
    ]
    assert remains.tables["device_processes"].rows() == [(CREATED_NS + 1, "gpu0", PID, 10**9, True)]
