"""The journal is followed frame by frame, however its bytes arrive."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from fuelline.ingest.recording import journal_tail
from fuelline.ingest.recording.journal_tail import JournalTail
from fuelline.schema.run.journal import encode_frame
from fuelline.schema.run.samples import HostSample, Limits, Place, ThreadClock

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.run.samples import Row


def clock(at_ns: int) -> ThreadClock:
    return ThreadClock(at_ns, 1, 1, at_ns, 0)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "observer.journal"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_journal_that_is_not_there_yet_has_no_rows(journal: Path) -> None:
    tail = JournalTail(journal)
    assert tail.look() == []
    append(journal, encode_frame([clock(1)]))
    assert tail.look() == [clock(1)]


def test_a_frame_cut_anywhere_is_told_when_its_rest_is_there(journal: Path) -> None:
    frame = encode_frame([clock(2), clock(3)])
    for cut in range(1, len(frame)):
        journal.unlink(missing_ok=True)
        append(journal, encode_frame([clock(1)]) + frame[:cut])
        tail = JournalTail(journal)
        assert tail.look() == [clock(1)]
        assert tail.look() == []
        append(journal, frame[cut:] + encode_frame([clock(4)]))
        assert tail.look() == [clock(2), clock(3), clock(4)]
        assert tail.damaged == 0


def test_damage_costs_the_frame_that_it_touches(journal: Path) -> None:
    bad = bytearray(encode_frame([clock(2)]))
    bad[-1] ^= 0xFF
    tail = JournalTail(journal)
    append(journal, encode_frame([clock(1)]) + bytes(bad) + encode_frame([clock(3)]))
    assert tail.look() == [clock(1), clock(3)]
    assert tail.damaged == 1


def test_a_journal_of_nothing_but_damage_does_not_stop_us(journal: Path) -> None:
    append(journal, b"\xff" * 500)
    tail = JournalTail(journal)
    tail.look()
    append(journal, encode_frame([clock(1)]))
    assert clock(1) in tail.look()


def long_journal() -> list[list[Row]]:
    lasting: list[Row] = [
        Place(1, "/data/a", "/data", "nfs4", "0:1"),
        Limits(1, 2, 2, None, None, {}),
        HostSample(1, {"psi.io.some_us": 1.0}),
    ]
    return [lasting, *([clock(at)] for at in range(2, 3000))]


def test_a_first_look_has_the_last_frames_and_later_ones_what_lasts(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_tail, "SLICE_BYTES", 1000)
    frames = long_journal()
    append(journal, b"".join(map(encode_frame, frames)))
    tail = JournalTail(journal)
    first = tail.look()
    assert not tail.is_counted
    assert first[-1] == clock(2999)
    told = [row for row in first if isinstance(row, ThreadClock)]
    assert len(told) == journal_tail.FIRST_LOOK_FRAMES
    lasting = [row for row in first if not isinstance(row, ThreadClock)]
    while not tail.is_counted:
        lasting += tail.look()
    assert lasting == frames[0]
    assert tail.look() == []


def test_a_frame_longer_than_a_slice_is_read_all_the_same(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_tail, "SLICE_BYTES", 8)
    append(journal, b"".join(map(encode_frame, long_journal()[:40])))
    tail = JournalTail(journal)
    rows = tail.look()
    while not tail.is_counted:
        rows += tail.look()
    assert sum(not isinstance(row, ThreadClock) for row in rows) == 3


def test_a_journal_that_is_cut_short_or_removed_has_nothing_more(journal: Path) -> None:
    append(journal, encode_frame([clock(1)]) * 30)
    tail = JournalTail(journal)
    tail.look()
    os.truncate(journal, 5)
    assert tail.look() == []
    journal.unlink()
    assert tail.look() == []
