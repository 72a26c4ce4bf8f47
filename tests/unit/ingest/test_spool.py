"""A spool is read as far as it was written, whatever happened to it."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.ingest.recording.spool import CHUNK_BYTES, SpoolContent, read_moments, read_spool
from fuelline.record.spool import Spool
from fuelline.schema import wire
from fuelline.schema.errors import DamagedRecordingError, NewerRecordingError
from fuelline.schema.wire import Kind
from tests.unit.ingest.remains import CREATED_NS, HOLE, PID, TID, header, record, spool, text

LONG_TEXT = "größe " * 20
SMALL = header() + b"".join(
    [
        record(Kind.WAIT, 1, 32, 1000, 5, 0),
        *text(7, LONG_TEXT),
        record(Kind.SOURCE, 1, 7),
        record(Kind.BACKWARD, 100, -1),
        record(Kind.STEP, 1, -1),
    ]
)
EVENTS = [Kind.WAIT, Kind.SOURCE, Kind.BACKWARD, Kind.STEP]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool") / f"{PID}.spool"


def read(path: Path, content: bytes) -> SpoolContent | None:
    path.write_bytes(content)
    return read_spool(path)


def kinds(content: SpoolContent | None) -> list[int]:
    assert content is not None
    return content.events["kind"].to_list()


def test_a_whole_spool_gives_back_what_was_written(path: Path) -> None:
    content = read(path, SMALL + bytes(1000))
    assert kinds(content) == EVENTS
    assert (content.pid, content.ppid, content.created_ns) == (PID, 1, CREATED_NS)
    assert content.texts == {7: LONG_TEXT}
    assert content.damaged == 0
    assert content.events.row(0) == (PID, TID, 1, 0, CREATED_NS + 5, 3, 1, 32, 1000, 5, 0)


def test_negative_fields_stay_negative(path: Path) -> None:
    content = read(path, header() + record(Kind.PAUSE, -1, -(2**62)))
    assert content.events.select("a", "b").row(0) == (-1, -(2**62))


def test_a_spool_cut_at_any_byte_keeps_the_records_before_the_cut(path: Path) -> None:
    written = [
        int.from_bytes(SMALL[at + 62 : at + 64], "little")
        for at in range(wire.HEADER_BYTES, len(SMALL), wire.RECORD_BYTES)
    ]
    for cut in [*range(0, wire.HEADER_BYTES, 97), *range(wire.HEADER_BYTES, len(SMALL) + 1)]:
        if 0 < cut < wire.HEADER_BYTES:
            with pytest.raises(DamagedRecordingError, match="cut short"):
                read(path, SMALL[:cut])
            continue
        content = read(path, SMALL[:cut])
        if not cut:
            assert content is None
            continue
        whole = written[: (cut - wire.HEADER_BYTES) // wire.RECORD_BYTES]
        assert kinds(content) == [kind for kind in whole if kind != Kind.TEXT], cut


@given(st.integers(wire.HEADER_BYTES * 8, len(SMALL) * 8 - 1))
def test_a_flipped_bit_in_the_records_never_stops_the_reader(path: Path, bit: int) -> None:
    damaged = bytearray(SMALL)
    damaged[bit // 8] ^= 1 << bit % 8
    content = read(path, bytes(damaged))
    assert content is not None
    assert content.events.height + content.damaged >= len(EVENTS) - 1
    assert (content.events["dur_ns"] >= 0).all()
    assert (content.events["start_ns"] > 0).all()


@given(st.integers(0, 127 * 8))
def test_a_flipped_bit_in_the_header_is_survived_or_refused(path: Path, bit: int) -> None:
    damaged = bytearray(SMALL)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        content = read(path, bytes(damaged))
    except (DamagedRecordingError, NewerRecordingError):
        return
    assert kinds(content) == EVENTS


@given(st.binary(max_size=200))
def test_any_bytes_after_a_good_header_are_survived(path: Path, noise: bytes) -> None:
    content = read(path, header() + record(Kind.WAIT, 1) + noise)
    assert kinds(content)[0] == Kind.WAIT


def test_a_text_with_an_absurd_length_is_left_out(path: Path) -> None:
    lie = wire.TEXT_RECORD.pack(9, 2**60, b"x", TID, 0, int(Kind.TEXT))
    content = read(path, header() + lie + record(Kind.WAIT, 1))
    assert content.texts == {}
    assert kinds(content) == [Kind.WAIT]


def test_holes_between_records_are_skipped_and_not_called_damage(path: Path) -> None:
    body = record(Kind.WAIT, 1) + HOLE + HOLE + record(Kind.BACKWARD) + HOLE
    content = read(path, header() + body)
    assert kinds(content) == [Kind.WAIT, Kind.BACKWARD]
    assert content.damaged == 0


def test_a_record_that_was_cut_off_while_being_written_is_a_hole(path: Path) -> None:
    # kind is the last field that is written, so everything else may be there already.
    torn = record(Kind.WAIT, 1, 2, 3)[:-2] + b"\0\0"
    content = read(path, header() + torn + record(Kind.BACKWARD))
    assert (kinds(content), content.damaged) == ([Kind.BACKWARD], 0)


@pytest.mark.parametrize(
    "bad",
    [
        record(99),
        record(2**16 - 1),
        record(Kind.WAIT, dur_ns=2**63),
        record(Kind.WAIT, dur_ns=40 * 24 * 3600 * 10**9),
        record(Kind.WAIT, start_ns=0),
    ],
)
def test_a_record_that_we_cannot_have_written_is_counted_and_not_used(
    path: Path, bad: bytes
) -> None:
    content = read(path, header() + record(Kind.WAIT, 1) + bad + record(Kind.BACKWARD))
    assert (kinds(content), content.damaged) == ([Kind.WAIT, Kind.BACKWARD], 1)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_text_with_a_missing_chunk_is_left_out(path: Path, lost: int) -> None:
    chunks = text(7, LONG_TEXT)
    kept = b"".join(chunk for number, chunk in enumerate(chunks) if number != lost)
    content = read(path, header() + kept + b"".join(text(8, "short")))
    assert content.texts == {8: "short"}


def test_chunks_of_two_threads_may_interleave(path: Path) -> None:
    one, two = text(1, "a" * 100), text(2, "b" * 100)
    mixed = b"".join(chunk for pair in zip(one, two, strict=True) for chunk in pair[::-1])
    assert read(path, header() + mixed).texts == {1: "a" * 100, 2: "b" * 100}


def test_a_text_that_is_not_utf8_is_shown_as_far_as_it_can_be(path: Path) -> None:
    broken = wire.TEXT_RECORD.pack(1, 4, b"ab\xff\xfe", TID, 0, int(Kind.TEXT))
    assert read(path, header() + broken).texts == {1: "ab\ufffd\ufffd"}


def test_a_process_that_died_before_its_header_left_nothing(path: Path) -> None:
    assert read(path, b"") is None
    assert read(path, bytes(wire.HEADER_BYTES)) is None
    assert read(path, bytes(100)) is None


def test_a_spool_without_its_beginning_is_damaged(path: Path) -> None:
    """As one is that was cut to nothing while its process went on writing."""
    with pytest.raises(DamagedRecordingError, match="was cut short"):
        read(path, bytes(wire.HEADER_BYTES) + record(Kind.WAIT))


def test_a_spool_that_is_shorter_than_it_was_written_is_cut(path: Path) -> None:
    whole = spool(record(Kind.WAIT), record(Kind.BACKWARD))
    content = read(path, whole)
    assert content is not None
    assert not content.is_cut
    for less in (1, wire.RECORD_BYTES, 2 * wire.RECORD_BYTES):
        content = read(path, whole[:-less])
        assert content is not None
        assert content.is_cut, less


def test_a_spool_of_version_1_ends_with_zeros(path: Path) -> None:
    content = read(path, header(version=1) + record(Kind.WAIT) + bytes(8 * 1024))
    assert content is not None
    assert (kinds(content), content.is_cut) == ([Kind.WAIT], False)


@pytest.mark.parametrize(
    "bad",
    [
        record(Kind.WAIT, start_ns=CREATED_NS - 1),
        record(Kind.WAIT, start_ns=CREATED_NS + 101, dur_ns=0),
        record(Kind.WAIT, start_ns=CREATED_NS + 5, dur_ns=96),
        record(Kind.WAIT, start_ns=2**63 - 1, dur_ns=10**15),
        wire.RECORD.pack(CREATED_NS, 1, 0, 0, 0, 0, 0, 2**22 + 1, 0, int(Kind.WAIT)),
    ],
)
def test_a_record_outside_the_run_is_counted_and_not_used(path: Path, bad: bytes) -> None:
    path.write_bytes(header() + record(Kind.WAIT) + bad + record(Kind.BACKWARD))
    content = read_spool(path, (CREATED_NS, CREATED_NS + 100))
    assert content is not None
    assert (kinds(content), content.damaged) == ([Kind.WAIT, Kind.BACKWARD], 1)


def test_a_header_alone_is_a_process_without_events(path: Path) -> None:
    content = read(path, header())
    assert (content.events.height, content.texts) == (0, {})


def test_a_foreign_file_is_refused_by_its_first_bytes(path: Path) -> None:
    with pytest.raises(DamagedRecordingError, match="does not start like a spool"):
        read(path, b"\x7fELF" + bytes(8000))


def test_a_newer_spool_is_refused_with_both_versions(path: Path) -> None:
    with pytest.raises(NewerRecordingError, match=rf"version {wire.VERSION + 1}.*{wire.VERSION}"):
        read(path, header(version=wire.VERSION + 1))


def test_the_live_words_are_read(path: Path) -> None:
    content = read(path, header(0, 12, 3))
    assert (content.dropped, content.faults) == (12, 3)


def test_a_process_id_that_cannot_exist_is_damage(path: Path) -> None:
    with pytest.raises(DamagedRecordingError, match="2147488359"):
        read(path, header(pid=2**31 + PID))


def test_a_blindspot_of_the_hooks_is_kept_though_it_has_no_time(tmp_path: Path) -> None:
    writer = Spool(str(tmp_path))
    writer.append(int(Kind.BLINDSPOT), 0, 0, writer.text("{}"))
    assert writer.path is not None
    content = read_spool(Path(writer.path))
    assert content is not None
    assert (content.events["kind"].to_list(), content.damaged) == ([Kind.BLINDSPOT], 0)


@pytest.mark.parametrize("front", [b"", header()])
def test_a_spool_of_holes_is_refused_without_reading_them(path: Path, front: bytes) -> None:
    path.write_bytes(front)
    os.truncate(path, wire.CAP_BYTES)
    with pytest.raises(OSError, match="mostly holes"):
        read_spool(path)
    with pytest.raises(OSError, match="mostly holes"):
        read_moments(path)


def test_zeros_between_records_are_passed_over(path: Path) -> None:
    content = read(path, header() + record(Kind.WAIT) + bytes(CHUNK_BYTES * 3) + record(Kind.PAUSE))
    assert (kinds(content), content.damaged) == ([Kind.WAIT, Kind.PAUSE], 0)
