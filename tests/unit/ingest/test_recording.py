"""A recording is whole at every moment, can be copied, and says what is wrong with it."""

import os
import random
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import polars as pl
import pytest

from fuelline import pipeline
from fuelline.ingest import compact_recording, load_recording
from fuelline.ingest.recording import folder as recording
from fuelline.schema import wire
from fuelline.schema.errors import (
    DamagedRecordingError,
    InputError,
    NewerRecordingError,
    NotARecordingError,
)
from fuelline.schema.run.recording import MANIFEST_FILE, RUN_FILE, SPOOL_DIR, RunFacts
from fuelline.schema.run.samples import JOURNAL_NAME
from fuelline.schema.wire import Kind
from fuelline.store.listing import VERDICT_FILE
from fuelline.timeline import Timeline
from tests.unit.ingest.remains import (
    CREATED_NS,
    PID,
    RUN,
    header,
    record,
    snapshot,
    spool,
    write_run,
)


def assert_equal(one: Timeline, two: Timeline) -> None:
    assert one.tables.keys() == two.tables.keys()
    for name in one.tables:
        assert one.table(name).equals(two.table(name)), name
    for field in ("run", "loaders", "processes", "limits", "blindspots", "devices"):
        assert getattr(one, field) == getattr(two, field), field
    assert dict(one.source_lines) == dict(two.source_lines)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture
def compacted(run: Path) -> Path:
    compact_recording(run)
    return run


def test_raw_and_compacted_give_equal_timelines(run: Path) -> None:
    raw = load_recording(run)
    raw.check()
    assert_equal(raw, compact_recording(run))
    assert_equal(raw, load_recording(run))


def test_compaction_replaces_the_raw_files(compacted: Path) -> None:
    assert (compacted / MANIFEST_FILE).exists()
    assert not (compacted / SPOOL_DIR).exists()
    assert not (compacted / JOURNAL_NAME).exists()
    assert not list(compacted.glob(".*"))


def test_compacting_twice_changes_nothing(compacted: Path) -> None:
    before = snapshot(compacted)
    assert_equal(load_recording(compacted), compact_recording(compacted))
    assert snapshot(compacted) == before


def test_reading_raw_changes_nothing(run: Path) -> None:
    before = snapshot(run)
    load_recording(run)
    assert snapshot(run) == before


def test_raw_files_go_only_after_the_manifest_exists(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Path.unlink

    def watched(path: Path, **options: bool) -> None:
        seen.append((run / MANIFEST_FILE).exists())
        real(path, **options)

    monkeypatch.setattr(Path, "unlink", watched)
    compact_recording(run)
    assert seen == [True, True]  # the spool and the journal


def test_a_crash_between_tables_and_manifest_is_repaired_by_the_next_read(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = load_recording(run)
    with monkeypatch.context() as patch:
        patch.setattr(recording, "write_file", _fail_at(MANIFEST_FILE, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            compact_recording(run)
    assert (run / "events.parquet").exists()
    assert (run / SPOOL_DIR).exists()
    (run / "events.parquet").write_bytes(b"half a tab")
    assert_equal(raw, load_recording(run))
    assert_equal(raw, compact_recording(run))
    assert_equal(raw, load_recording(run))


def _fail_at(name: str, error: BaseException) -> Callable[[Path, bytes], None]:
    """Write files as usual, but fail at one of them."""
    real = recording.write_file

    def write(path: Path, data: bytes) -> None:
        if path.name == name:
            raise error
        real(path, data)

    return write


@pytest.mark.parametrize("table", ["events", "stacks"])
def test_without_room_the_raw_files_are_still_read(
    run: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(recording, "write_file", _fail_at(f"{table}.parquet", full))
    diagnosis = pipeline.diagnose_run(run)
    assert diagnosis.steps.count == 7
    assert (run / SPOOL_DIR).exists()
    assert not (run / MANIFEST_FILE).exists()
    assert not list(run.glob(".*"))


def test_half_a_file_is_never_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "manifest.json").write_text("old")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        recording.write_file(tmp_path / "manifest.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    assert (tmp_path / "manifest.json").read_text() == "old"


def test_two_readers_at_once_compact_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The second reader comes while the first one holds the lock, and gets it when all is done.
    raw = load_recording(run)
    first = recording._compact
    monkeypatch.setattr(recording.fcntl, "flock", lambda *_: first(run, raw.run))
    monkeypatch.setattr(recording, "_compact", lambda *_: pytest.fail("compacted twice"))
    assert_equal(raw, compact_recording(run))


def test_a_diagnosis_compacts_a_run_that_has_ended(run: Path) -> None:
    first = pipeline.diagnose_run(run)
    assert (run / MANIFEST_FILE).exists()
    assert pipeline.diagnose_run(run) == first


def running(**changes: object) -> RunFacts:
    here = socket.gethostname()
    return msgspec.structs.replace(RUN, host=here, ended_ns=None, exit_code=None, **changes)


def test_a_run_whose_job_still_writes_is_read_and_left_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", run=running())
    (run / SPOOL_DIR / f"{os.getpid()}-1.spool").write_bytes(b"")
    before = snapshot(run)
    diagnosis = pipeline.diagnose_run(run)
    assert (diagnosis.steps.count, diagnosis.run.seconds) == (7, None)
    assert "how the job ended" in [spot.what for spot in diagnosis.blindspots]
    assert snapshot(run) == before


def test_a_run_whose_job_has_not_written_yet_is_left_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", run=running(launcher_pid=os.getpid()))
    before = snapshot(run)
    assert pipeline.diagnose_run(run).steps.count == 7
    assert snapshot(run) == before


def test_the_run_of_a_killed_launcher_is_compacted_when_it_is_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", run=running(launcher_pid=2**22 + 1))
    assert pipeline.diagnose_run(run).steps.count == 7
    assert (run / MANIFEST_FILE).exists()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _restamp(**stamp: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = msgspec.json.decode(path.read_bytes())
        path.write_bytes(msgspec.json.encode(content | stamp))

    return change


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _write(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def elsewhere(tmp_path: Path, age_s: int) -> Path:
    """A run of another host that has not ended, and was written to so long ago."""
    facts = msgspec.structs.replace(running(launcher_pid=2**22 + 1), host="another")
    run = write_run(tmp_path / "run", run=facts)
    for path in run.rglob("*"):
        at_ns = time.time_ns() - age_s * 10**9
        os.utime(path, ns=(at_ns, at_ns))
    return run


def test_a_run_that_may_go_on_at_another_host_is_read_and_left_alone(tmp_path: Path) -> None:
    run = elsewhere(tmp_path, age_s=600)
    before = snapshot(run)
    assert pipeline.diagnose_run(run).steps.count == 7
    assert snapshot(run) == before


def test_a_run_of_another_host_to_which_nobody_writes_is_compacted(tmp_path: Path) -> None:
    run = elsewhere(tmp_path, age_s=4000)
    assert pipeline.diagnose_run(run).steps.count == 7
    assert (run / MANIFEST_FILE).exists()


def test_a_spool_of_a_newer_version_is_refused_and_nothing_is_changed(run: Path) -> None:
    (run / SPOOL_DIR / "5000.spool").write_bytes(spool(front=header(version=99)))
    before = snapshot(run)
    with pytest.raises(NewerRecordingError, match=r"5000\.spool"):
        pipeline.diagnose_run(run)
    assert snapshot(run) == before


def _spoil_magic(path: Path) -> None:
    path.write_bytes(b"GARBAGE!" + path.read_bytes()[8:])


def _spoil_times(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-wire.RECORD_BYTES :] = record(Kind.WAIT, start_ns=CREATED_NS + 10**15)
    path.write_bytes(bytes(data))


RAW_DAMAGE = {
    "a spool that is none": (f"{SPOOL_DIR}/{PID}.spool", _spoil_magic, f"{PID}.spool"),
    "a spool cut short": (f"{SPOOL_DIR}/{PID}.spool", _cut, f"{PID}.spool"),
    "a spool without its header": (
        f"{SPOOL_DIR}/{PID}.spool",
        lambda path: path.write_bytes(path.read_bytes()[:50]),
        f"{PID}.spool",
    ),
    "a record out of time": (f"{SPOOL_DIR}/{PID}.spool", _spoil_times, f"process {PID}"),
    "a journal that is none": (JOURNAL_NAME, _write(b"x" * 999), JOURNAL_NAME),
}


@pytest.mark.parametrize("damage", RAW_DAMAGE)
def test_damaged_raw_files_are_named_and_kept_and_give_the_same_answer_again(
    run: Path, damage: str
) -> None:
    name, harm, said = RAW_DAMAGE[damage]
    harm(run / name)
    before = snapshot(run)
    first = pipeline.diagnose_run(run)
    assert any(said in f"{spot.what}: {spot.why}" for spot in first.blindspots)
    assert "loaded" not in (first.verdict.reason or "")
    (run / VERDICT_FILE).unlink()  # for the list of runs; all else stays as it was
    assert snapshot(run) == before
    assert pipeline.diagnose_run(run) == first


@pytest.mark.parametrize("seed", range(8))
def test_flipped_bits_do_not_make_a_run_longer_than_it_was(run: Path, seed: int) -> None:
    path = run / SPOOL_DIR / f"{PID}.spool"
    data = bytearray(path.read_bytes())
    chance = random.Random(seed)
    used = range(wire.HEADER_BYTES * 8, (wire.HEADER_BYTES + 30 * wire.RECORD_BYTES) * 8)
    for bit in chance.sample(used, 200):
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(data))
    timeline = load_recording(run)
    ends = timeline.table("events").select(pl.col("start_ns") + pl.col("dur_ns")).to_series()
    assert ends.max() <= RUN.ended_ns + 5 * 10**9
    assert any("damaged" in spot.why for spot in timeline.blindspots)


def test_a_copied_folder_gives_the_same_timeline(compacted: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(compacted, copy)
    original = load_recording(compacted)
    shutil.rmtree(compacted)
    assert_equal(original, load_recording(copy))


def test_the_text_of_sampled_lines_travels_with_the_recording(compacted: Path) -> None:
    lines = load_recording(compacted).source_lines
    assert list(lines.values()) == ["def main():"]


DAMAGE = {
    "a missing table": ("events.parquet", Path.unlink, DamagedRecordingError),
    "a truncated table": ("host.parquet", _cut, DamagedRecordingError),
    "an altered table": ("states.parquet", _flip, DamagedRecordingError),
    "a folder for a table": ("states.parquet", _replace_by_folder, DamagedRecordingError),
    "a missing manifest": (MANIFEST_FILE, Path.unlink, DamagedRecordingError),
    "a cut manifest": (MANIFEST_FILE, _cut, DamagedRecordingError),
    "an empty manifest": (MANIFEST_FILE, _write(b""), DamagedRecordingError),
    "a manifest that is no JSON": (MANIFEST_FILE, _write(b"\xff\xfe\x00"), DamagedRecordingError),
    "a manifest without a run": (
        MANIFEST_FILE,
        _write(b'{"format": "fuelline-recording", "version": 1}'),
        DamagedRecordingError,
    ),
    "a folder for a manifest": (MANIFEST_FILE, _replace_by_folder, DamagedRecordingError),
    "a foreign manifest": (MANIFEST_FILE, _write(b'{"name": "my-package"}'), NotARecordingError),
    "a JSON list": (MANIFEST_FILE, _write(b"[1, 2]"), DamagedRecordingError),
    "a newer manifest": (MANIFEST_FILE, _restamp(version=99), NewerRecordingError),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_with_its_path_and_a_next_step(compacted: Path, damage: str) -> None:
    name, harm, error = DAMAGE[damage]
    harm(compacted / name)
    before = snapshot(compacted)
    with pytest.raises(InputError) as raised:
        pipeline.diagnose_run(compacted)
    assert type(raised.value) is error
    assert str(compacted / name) in str(raised.value)
    assert _has_next_step(str(raised.value)), str(raised.value)
    assert snapshot(compacted) == before


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (_cut, DamagedRecordingError),
        (_write(b"{}"), NotARecordingError),
        (_restamp(format="other"), NotARecordingError),
        (_restamp(version=99), NewerRecordingError),
        (_restamp(started_ns="soon"), DamagedRecordingError),
    ],
)
def test_a_bad_run_file_of_a_raw_run_is_named_too(
    run: Path, harm: Callable[[Path], None], error: type[InputError]
) -> None:
    harm(run / RUN_FILE)
    before = snapshot(run)
    with pytest.raises(error) as raised:
        pipeline.diagnose_run(run)
    assert str(run / RUN_FILE) in str(raised.value)
    assert _has_next_step(str(raised.value)), str(raised.value)
    assert snapshot(run) == before


def test_every_truncation_of_a_manifest_is_damage_and_no_crash(compacted: Path) -> None:
    manifest = compacted / MANIFEST_FILE
    whole = manifest.read_bytes()
    for cut in range(0, len(whole) - 1, 37):
        manifest.write_bytes(whole[:cut])
        with pytest.raises(DamagedRecordingError):
            load_recording(compacted)


def test_every_flipped_byte_of_a_table_is_noticed(compacted: Path) -> None:
    table = compacted / "states.parquet"
    whole = table.read_bytes()
    for at in range(0, len(whole), 29):
        table.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(DamagedRecordingError, match="altered"):
            load_recording(compacted)


def test_a_flipped_byte_of_the_manifest_is_never_a_crash(
    compacted: Path,
) -> None:
    manifest = compacted / MANIFEST_FILE
    whole = manifest.read_bytes()
    refused = 0
    for at in range(0, len(whole), 11):
        manifest.write_bytes(whole[:at] + bytes([whole[at] ^ 0x04]) + whole[at + 1 :])
        try:
            load_recording(compacted).check()
        except InputError:
            refused += 1
    assert refused


def test_a_folder_of_something_else_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    with pytest.raises(NotARecordingError, match="fuelline runs"):
        load_recording(tmp_path)


def test_a_file_and_a_missing_path_are_no_recordings(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "absent"):
        with pytest.raises(NotARecordingError, match=str(path)):
            load_recording(path)


def test_an_unknown_table_of_a_manifest_is_ignored(compacted: Path) -> None:
    manifest = compacted / MANIFEST_FILE
    content = msgspec.json.decode(manifest.read_bytes())
    content["tables"]["weather"] = {"rows": 1, "size_bytes": 1, "crc32": 1}
    manifest.write_bytes(msgspec.json.encode(content))
    load_recording(compacted).check()


def _has_next_step(message: str) -> bool:
    return any(f"`{command}" in message for command in ("fuelline ", "pip install"))
