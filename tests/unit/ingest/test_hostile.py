"""Runs from somebody else: nothing outside is read or written, nothing hangs, nothing crashes."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pytest

from fuelline import pipeline
from fuelline.ingest import find_parts, load_recording, read_recording
from fuelline.ingest.imports import find_sources
from fuelline.ingest.recording import folder
from fuelline.ingest.recording.spool_tail import SpoolTail
from fuelline.schema.errors import DamagedRecordingError, InputError
from fuelline.schema.run.journal import HEADER, decode_frames
from fuelline.schema.run.recording import MANIFEST_FILE, RUN_FILE, SPOOL_DIR, Manifest
from fuelline.schema.run.samples import (
    JOURNAL_NAME,
    HostSample,
    StackSample,
    ThreadClock,
    ThreadState,
)
from tests.unit.ingest.remains import CREATED_NS, JOURNAL, PID, TID, header, snapshot, write_run

if TYPE_CHECKING:
    from collections.abc import Callable

FAR = 2**63 - 1


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    path = tmp_path / "outside" / "secret.py"
    path.write_text("password = 'canary'\n")
    return path


def test_no_file_is_opened_because_a_frame_names_it(tmp_path: Path, secret: Path) -> None:
    stack = StackSample(CREATED_NS, CREATED_NS + 9, PID, TID, [f"main ({secret}:1)"], 99)
    run = write_run(tmp_path / "run", journal=[*JOURNAL, stack])
    assert "canary" not in str(load_recording(run).source_lines)
    assert "canary" not in str(read_recording(run).source_lines)
    assert not any(b"canary" in content for content in snapshot(run).values())


def test_planted_links_are_not_written_through(run: Path, secret: Path) -> None:
    before = secret.read_bytes()
    (run / f".{MANIFEST_FILE}.{os.getpid()}").symlink_to(secret)
    (run / "events.parquet").symlink_to(secret)
    read_recording(run)
    assert secret.read_bytes() == before
    assert not (run / "events.parquet").is_symlink()
    assert load_recording(run).table("events").height


def test_only_spools_are_deleted_when_a_run_is_compacted(run: Path) -> None:
    (run / SPOOL_DIR / "notes.txt").write_text("mine")
    read_recording(run)
    assert [path.name for path in (run / SPOOL_DIR).iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_nothing_is_written_where_others_can_write(run: Path, mode: int) -> None:
    run.chmod(mode)
    before = snapshot(run)
    assert pipeline.diagnose_run(run).steps.count == 7
    assert snapshot(run) == before


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_reads_the_run_of_a_user_and_leaves_it_alone(run: Path) -> None:
    for path in (run, *run.rglob("*")):
        os.chown(path, 65534, 65534)
    before = snapshot(run)
    assert pipeline.diagnose_run(run).steps.count == 7
    assert snapshot(run) == before


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _holes(path: Path) -> None:
    os.truncate(path, 100 << 30)


@pytest.mark.parametrize("spoil", [_link, _fifo, _holes])
@pytest.mark.parametrize("name", [RUN_FILE, MANIFEST_FILE, "events.parquet"])
def test_a_file_that_never_ends_is_named(
    run: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    if name != RUN_FILE:
        read_recording(run)
    spoil(run / name)
    with pytest.raises(DamagedRecordingError, match=name):
        load_recording(run)


@pytest.mark.parametrize("spoil", [_link, _fifo, _holes])
@pytest.mark.parametrize("name", [JOURNAL_NAME, f"{SPOOL_DIR}/{PID}.spool"])
def test_a_raw_file_that_never_ends_is_a_blindspot(
    run: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    spoil(run / name)
    timeline = read_recording(run)
    words = ("a link", "regular", "holes", "more than")
    assert any(word in spot.why for spot in timeline.blindspots for word in words)
    assert not (run / MANIFEST_FILE).exists()
    watch = pipeline.RunWatch(run)
    watch.look_at_all()
    watch.snapshot(workers=True)


def test_a_run_is_kept_as_it_is_if_its_manifest_could_not_be_read_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 MB of records that name one long text made a manifest of 120 MB, and the raw files went."""
    monkeypatch.setattr(folder, "MOST_FACTS_BYTES", 1000)
    before = (run / SPOOL_DIR / f"{PID}.spool").read_bytes()
    for _ in range(2):
        assert read_recording(run).table("events").height
    assert (run / SPOOL_DIR / f"{PID}.spool").read_bytes() == before
    assert not (run / MANIFEST_FILE).exists()


def test_a_part_that_is_a_link_is_no_part(tmp_path: Path, run: Path) -> None:
    several = tmp_path / "several"
    several.mkdir()
    (several / "node-0000").symlink_to(run)
    write_run(several / "node-0001")
    assert find_parts(several) == [several / "node-0001"]


def test_a_spool_longer_than_any_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "1.spool"
    path.write_bytes(header())
    os.truncate(path, 100 << 30)
    with pytest.raises(DamagedRecordingError, match="more than"):
        SpoolTail(path).look()


def test_rows_out_of_all_bounds_are_left_out_and_counted(tmp_path: Path) -> None:
    odd = [
        ThreadState(FAR, 2**40, TID, 1, "read", "pread64", 1, 20),
        ThreadClock(2**64 - 1, PID, TID, 100, 10),
        HostSample(CREATED_NS, {"cpu.busy_ns": float("nan"), "psi.io.some_us": 5.0}),
    ]
    run = write_run(tmp_path / "run", journal=[*JOURNAL, *odd])
    timeline = read_recording(run)
    assert timeline.table("states").height == timeline.table("clocks").height == 1
    assert timeline.table("host")["value"].is_finite().all()
    lost = [spot.what for spot in timeline.blindspots if "out of range" in spot.why]
    assert len(lost) == 3
    assert not (run / MANIFEST_FILE).exists()


def test_a_journal_in_which_every_byte_may_be_a_frame_is_given_up() -> None:
    payload = b"\x91\x91\x3f\x00" * 3_000_000
    decoded = decode_frames(HEADER.pack(0x3F9191, 0x919191) + payload)
    assert (decoded.rows, decoded.damaged) == ([], 1)


def test_a_frame_nested_too_deeply_costs_itself_only() -> None:
    payload = b"\x91" * 100_000
    frame = HEADER.pack(len(payload), zlib.crc32(payload)) + payload
    decoded = decode_frames(frame * 2)
    assert (decoded.rows, decoded.damaged) == ([], 2)


TABLES: dict[str, tuple[pl.Expr, str]] = {
    "nulls": (pl.lit(None, pl.Int64).alias("oncpu_ns"), "rows that no recorder writes"),
    "a time that overflows": (pl.lit(FAR).alias("at_ns"), "rows that no recorder writes"),
    "texts": (pl.col("at_ns").cast(pl.String), "String in the column at_ns"),
    "a column more": (pl.lit(1).alias("more"), "unknown columns"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_no_recorder_wrote_is_refused(run: Path, case: str) -> None:
    read_recording(run)
    change, words = TABLES[case]
    frame = pl.read_parquet(run / "clocks.parquet").with_columns(change)
    _replace_table(run, frame)
    with pytest.raises(DamagedRecordingError, match=words):
        load_recording(run)


def test_a_table_of_equal_rows_is_refused_by_its_claim(run: Path) -> None:
    read_recording(run)
    frame = pl.read_parquet(run / "clocks.parquet").head(1)
    _replace_table(run, frame.select(pl.all().repeat_by(3_000_000).explode()))
    with pytest.raises(DamagedRecordingError, match="claims 3000000 rows"):
        load_recording(run)


def _replace_table(run: Path, frame: pl.DataFrame) -> None:
    """Under a right checksum."""
    frame.write_parquet(run / "clocks.parquet", statistics=False)
    data = (run / "clocks.parquet").read_bytes()
    manifest = msgspec.json.decode((run / MANIFEST_FILE).read_bytes(), type=Manifest)
    facts = msgspec.structs.replace(
        manifest.tables["clocks"], size_bytes=len(data), crc32=zlib.crc32(data)
    )
    manifest.tables["clocks"] = facts
    (run / MANIFEST_FILE).write_bytes(msgspec.json.encode(manifest))


def test_traces_in_a_folder_are_regular_files_of_it(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "private.json").write_text('{"traceEvents":[]}')
    (tmp_path / "traces" / "link.json").symlink_to(tmp_path / "private.json")
    os.mkfifo(tmp_path / "traces" / "fifo.json")
    with pytest.raises(InputError, match="1 links are not followed"):
        find_sources([tmp_path / "traces"])
    with pytest.raises(InputError, match="not a regular file"):
        find_sources([tmp_path / "traces" / "fifo.json"])
    with pytest.raises(InputError, match="not a regular file"):
        find_sources([Path("/dev/zero")])
