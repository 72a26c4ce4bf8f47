"""However long a run, the observer's tables have few rows, and say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from fuelline.ingest.recording import thinning
from fuelline.ingest.recording.gather import gather
from fuelline.ingest.recording.journal import PIECE_BYTES, read_journal
from fuelline.ingest.recording.thinning import BoundedTable
from fuelline.schema.run import journal as journal_room
from fuelline.schema.run.journal import decode_frames, decode_pieces, encode_frame
from fuelline.schema.run.samples import (
    JOURNAL_NAME,
    HostSample,
    OtherProcess,
    ProcessClock,
    StackSample,
    ThreadClock,
    ThreadState,
)
from fuelline.timeline.tables import TABLES
from tests.unit.ingest.remains import CREATED_NS, RUN, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.run.samples import Row

MOST = 1000
SECONDS = 20_000
SECOND_NS = 10**9


@pytest.fixture
def long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some hours with a row a second of each kind, where a thousand are too many."""
    monkeypatch.setattr(thinning, "MOST_ROWS", MOST)
    monkeypatch.setattr(thinning, "MOST_STACKS", MOST)
    run = write_run(tmp_path / "run", journal=[])
    with (run / JOURNAL_NAME).open("wb") as file:
        for second in range(SECONDS):
            file.write(encode_frame(_rows(CREATED_NS + second * SECOND_NS, second)))
    return run


def _rows(at_ns: int, second: int) -> list[Row]:
    return [
        ThreadState(at_ns, 1, 2, 1, "read", "pread64", 0, 3),
        ThreadState(at_ns, 1, 2, 1, "running", "", 0, 7),
        ThreadClock(at_ns, 1, 2, second * 100, second * 10),
        ProcessClock(at_ns, 1, second, second, second, 4, 5, 6, 7, 8),
        HostSample(at_ns, {"cpu.busy_ns": float(second), "memory.available_bytes": 5.0}),
        OtherProcess(at_ns, SECOND_NS, 9, "other", 5, 6, 7, -1, 0, 2),
        StackSample(at_ns, at_ns + 9, 1, 2, ["main (a.py:1)", f"f{second % 2} (a.py:2)"], 5),
    ]


def test_a_long_journal_leaves_bounded_rows(long_run: Path) -> None:
    journal = read_journal(long_run)
    heights = {name: table.frame().height for name, table in journal.tables.items()}
    assert sum(table.rows for table in journal.tables.values()) == 8 * SECONDS
    assert max(heights.values()) <= MOST
    for name in ("states", "clocks", "processes", "host", "others", "stacks"):
        assert heights[name] > MOST // 16, name


def test_no_more_than_a_piece_is_in_memory_beside_them(long_run: Path) -> None:
    size_bytes = (long_run / JOURNAL_NAME).stat().st_size
    content = (long_run / JOURNAL_NAME).read_bytes()
    pieces = [content[at : at + 10_000] for at in range(0, size_bytes, 10_000)]
    most = max(len(decoded.rows) for decoded in decode_pieces(pieces, size_bytes))
    assert most < 10 * SECONDS // len(pieces)
    assert PIECE_BYTES < 4_000_000


def test_what_adds_up_and_what_grows_stays_what_it_was(long_run: Path) -> None:
    tables = gather(long_run, RUN).tables
    counts = tables["states"].group_by("state").agg(pl.col("count").sum()).sort("state")
    assert counts.rows() == [("read", 3 * SECONDS), ("running", 7 * SECONDS)]
    assert tables["others"]["blocked"].sum() == 2 * SECONDS
    assert tables["others"]["interval_ns"].sum() == SECONDS * SECOND_NS
    assert tables["others"]["calls"].max() == -1
    assert tables["clocks"]["oncpu_ns"].max() == (SECONDS - 1) * 100
    busy = tables["host"].filter(pl.col("name") == "cpu.busy_ns")
    assert busy["value"][-1] == SECONDS - 1
    assert (busy["value"] * SECOND_NS == busy["at_ns"] - CREATED_NS).all()
    ends = tables["stacks"]["frames"].list.last().value_counts(sort=True)["count"]
    assert ends[0] < 1.5 * ends[1]
    for name, columns in TABLES.items():
        assert dict(tables[name].schema) == dict(columns), name


def test_the_report_says_that_rows_were_joined(long_run: Path) -> None:
    (spot,) = (spot for spot in gather(long_run, RUN).blindspots if "one second" in spot.what)
    assert "160,000 rows are too many" in spot.why
    assert "states over" in spot.why


def test_what_is_few_is_left_alone(tmp_path: Path) -> None:
    journal = read_journal(write_run(tmp_path / "run"))
    assert all(table.joined_ns == 0 for table in journal.tables.values())


def test_rows_that_cannot_be_joined_do_not_hang() -> None:
    table = BoundedTable("clocks", most_rows=10)
    rows = [(CREATED_NS, 1, tid, 1, 1) for tid in range(100)]
    table.add(pl.DataFrame(rows, schema=dict(TABLES["clocks"]), orient="row"))
    assert table.frame().height == 100


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_a_journal_reads_the_same_in_pieces(size: int) -> None:
    frames = [encode_frame(_rows(second, second)) for second in range(40)]
    frames[20] = bytes(len(frames[20]))
    for content in (b"".join(frames), b"".join(frames)[:-5], b"".join(frames) + bytes(100)):
        whole = decode_frames(content)
        pieces = [content[at : at + size] for at in range(0, len(content), size)]
        found = list(decode_pieces(pieces, len(content)))
        assert [row for piece in found for row in piece.rows] == whole.rows
        assert sum(piece.damaged for piece in found) == whole.damaged
        assert found[-1].torn_bytes == whole.torn_bytes


def test_frames_that_pieces_cut_cost_no_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_room, "_MOST_GUESSES", 10)
    content = b"".join(encode_frame(_rows(second, second) * 20) for second in range(50))
    pieces = [content[at : at + 1000] for at in range(0, len(content), 1000)]
    found = list(decode_pieces(pieces, len(content)))
    assert sum(len(piece.rows) for piece in found) == 50 * 20 * 7
    assert not any(piece.damaged for piece in found)


def test_a_length_beyond_the_end_hides_no_frame() -> None:
    whole = encode_frame(_rows(1, 1))
    liar = (len(whole) * 100).to_bytes(4, "little") + whole[4:]
    pieces = [piece[at : at + 50] for piece in [liar + whole] for at in range(0, len(piece), 50)]
    found = list(decode_pieces(pieces, 2 * len(whole)))
    assert sum(len(piece.rows) for piece in found) == 7
    assert sum(piece.damaged for piece in found) == 1
