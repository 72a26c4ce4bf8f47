"""The journal's file: frames appear when flushed, and a full disk costs rows, never the file."""

import errno
import os
from pathlib import Path

import pytest

from fuelline.record.observer import MAX_FRAME_ROWS, JournalWriter
from fuelline.schema.run.journal import decode_frames
from fuelline.schema.run.samples import Blind, Row

ROW = Blind("a", "b", "c")


def read_rows(path: Path) -> list[Row]:
    decoded = decode_frames(path.read_bytes())
    assert (decoded.damaged, decoded.torn_bytes) == (0, 0)
    return decoded.rows


def test_rows_are_on_disk_after_a_flush_without_a_close(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")
    writer.add([ROW])
    assert read_rows(tmp_path / "j") == []
    writer.flush()
    assert read_rows(tmp_path / "j") == [ROW]
    writer.close()


def test_a_second_writer_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    for _ in range(2):
        writer = JournalWriter(tmp_path / "j")
        writer.add([ROW])
        writer.close()
    assert read_rows(tmp_path / "j") == [ROW, ROW]


def test_many_rows_are_split_into_frames_of_a_readable_size(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")
    writer.add([ROW] * (2 * MAX_FRAME_ROWS + 1))
    writer.close()
    assert len(read_rows(tmp_path / "j")) == 2 * MAX_FRAME_ROWS + 1


def test_a_full_disk_is_survived_in_silence() -> None:
    writer = JournalWriter(Path("/dev/full"))
    writer.add([ROW])
    writer.flush()
    writer.add([ROW])
    writer.close()


def test_what_a_full_disk_swallowed_is_told_once_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = JournalWriter(tmp_path / "j")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        writer.add([ROW, ROW])
        writer.flush()
    writer.add([ROW])
    writer.close()
    told, kept = read_rows(tmp_path / "j")
    assert isinstance(told, Blind)
    assert told.what.startswith("2 rows")
    assert kept == ROW


def test_a_half_written_frame_is_cut_off_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = JournalWriter(tmp_path / "j")
    writer.add([ROW])
    writer.flush()
    whole = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: whole(fd, data[:5]))
        writer.add([ROW])
        writer.flush()
    assert read_rows(tmp_path / "j") == [ROW]
    writer.close()


def refuse(_fd: int, _data: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")
