"""A spool is followed while it grows; every record is told or counted once."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.ingest.recording import spool_tail
from fuelline.ingest.recording.spool import read_spool
from fuelline.ingest.recording.spool_tail import SpoolTail
from fuelline.record.spool import Spool
from fuelline.schema import wire
from fuelline.schema.diagnosis.live import LiveEvent
from fuelline.schema.errors import InputError
from fuelline.schema.wire import Flag, Kind
from tests.unit.ingest.remains import CREATED_NS, HOLE, header, record, text

if TYPE_CHECKING:
    from fuelline.ingest.recording.spool_tail import SpoolRead


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(str(tmp_path))


def start_of(spool: Spool) -> SpoolTail:
    assert spool.path is not None
    return SpoolTail(Path(spool.path))


def write(spool: Spool, first: int, count: int) -> list[int]:
    """Steps 2 ms apart, told apart by their start."""
    starts = [(first + number) * 2 * 10**6 for number in range(count)]
    for start_ns in starts:
        spool.append(int(Kind.STEP), start_ns, 5, 1)
    spool.write_buffered()
    return starts


def starts_in(look: SpoolRead | None) -> list[int]:
    assert look is not None
    return [event.start_ns for event in look.events]


def look_until_counted(tail: SpoolTail) -> list[SpoolRead]:
    looks = []
    while not looks or not tail.is_counted:
        found = tail.look(1)
        assert found is not None
        looks.append(found)
    return looks


def test_a_spool_that_grows_is_told_once_and_in_order(spool: Spool) -> None:
    told: list[int] = []
    written = write(spool, 1, 1)
    tail = start_of(spool)
    for count in (1, 100, 500, 9000, 20_000, 3):
        told += starts_in(tail.look())
        written += write(spool, len(written) + 1, count)
    told += starts_in(tail.look())
    assert told == written
    assert starts_in(tail.look()) == []
    assert tail.damaged == 0


def test_the_header_tells_the_trainer_and_where_its_phase_is(spool: Spool) -> None:
    write(spool, 1, 1)
    spool.set_trainer(77)
    look = start_of(spool).look()
    assert look is not None
    assert look.header.trainer_tid == 77
    page = wire.open_live(os.getpid(), look.header.live_fd - 1)
    for phase in (wire.Phase.CHECKPOINT, wire.Phase.WAIT):
        spool.buffer.phase = int(phase)
        assert os.pread(page, 1, wire.PHASE_OFFSET)[0] == phase
    os.close(page)


def test_a_first_look_tells_the_last_seconds_and_counts_the_rest(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_tail, "SLICE_BYTES", 64 * 1024)
    written = write(spool, 1, 20_000)  # 40 s
    looks = look_until_counted(start_of(spool))
    told = starts_in(looks[0])
    assert told[0] == written[-1] - spool_tail.FIRST_LOOK_NS
    assert told[-1] == written[-1]
    assert sum(look.past_steps[1] for look in looks) + len(told) == len(written)
    assert len(looks) > 1  # in slices, not at once


@given(
    kinds=st.lists(
        st.sampled_from([Kind.STEP, Kind.WAIT, Kind.BACKWARD, Kind.GC, Kind.TEXT, 0]),
        max_size=300,
    ),
    window_ns=st.integers(0, 400),
)
def test_wherever_the_first_look_begins_nothing_is_lost_or_counted_twice(
    kinds: list[int], window_ns: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("spool") / "1.spool"
    rows = [
        record(kind, number % 3, start_ns=1000 + number) if kind else HOLE
        for number, kind in enumerate(kinds)
    ]
    path.write_bytes(header() + b"".join(rows) + bytes(4096))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_tail, "FIRST_LOOK_NS", window_ns)
        looks = look_until_counted(SpoolTail(path))
    told = [event for look in looks for event in look.events]
    steps = Counter(event.owner for event in told if event.kind == Kind.STEP)
    for look in looks:
        steps.update(look.past_steps)
    batches = sum(event.kind == Kind.WAIT for event in told) + sum(
        look.past_batches for look in looks
    )
    truth = read_spool(path)
    assert truth is not None
    assert steps == Counter(
        a for kind, a in truth.events.select("kind", "a").iter_rows() if kind == Kind.STEP
    )
    assert batches == truth.events["kind"].to_list().count(Kind.WAIT)


def test_batches_that_were_none_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "1.spool"
    row = (10, 1, 1, 0, 0, 0, 0, 7)
    rows = [wire.RECORD.pack(*row, flags, Kind.WAIT) for flags in (0, Flag.TRAINING, Flag.END, 4)]
    late = record(Kind.WAIT, start_ns=10 + 2 * spool_tail.FIRST_LOOK_NS)
    path.write_bytes(header() + b"".join(rows) + late)
    (look,) = look_until_counted(SpoolTail(path))
    assert (look.past_batches, len(look.events)) == (2, 1)


@pytest.mark.parametrize(
    "rest",
    [
        random.Random(1).randbytes(64 * 40),
        b"\xff" * 100,
        record(250),
        record(Kind.WAIT, start_ns=0),
        wire.RECORD.pack(5, 2**62, 0, 0, 0, 0, 0, 1, 0, Kind.WAIT),
    ],
)
def test_garbage_is_counted_and_what_follows_is_read(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "1.spool"
    path.write_bytes(header() + record(Kind.GC, start_ns=11))
    tail = SpoolTail(path)
    assert starts_in(tail.look()) == [11]
    with path.open("ab") as file:
        file.write(rest + b"\xff" * (-len(rest) % wire.RECORD_BYTES) + record(Kind.GC, start_ns=12))
    assert 12 in starts_in(tail.look())
    assert tail.damaged


def test_a_file_that_is_cut_short_under_our_eyes_tells_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "1.spool"
    path.write_bytes(header() + record(Kind.GC, start_ns=11) * 100)
    tail = SpoolTail(path)
    tail.look()
    os.truncate(path, wire.HEADER_BYTES + 70)
    assert starts_in(tail.look()) == []


def test_half_a_record_at_the_end_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "1.spool"
    row = record(Kind.GC, start_ns=11)
    path.write_bytes(header() + row[:40])
    tail = SpoolTail(path)
    assert starts_in(tail.look()) == []
    path.write_bytes(header() + row)
    assert starts_in(tail.look()) == [11]


def test_a_header_that_is_not_written_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "1.spool"
    path.write_bytes(b"")
    tail = SpoolTail(path)
    assert tail.look() is None
    path.write_bytes(bytes(wire.HEADER_BYTES))
    assert tail.look() is None
    path.write_bytes(header() + record(Kind.GC, start_ns=11))
    assert starts_in(tail.look()) == [11]


def test_a_file_that_is_no_spool_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.spool"
    path.write_bytes(header(magic=b"NOTOURS!"))
    with pytest.raises(InputError, match="does not start like a spool"):
        SpoolTail(path).look()


def test_notes_are_told_wherever_they_lie(tmp_path: Path) -> None:
    """The text in the past, the record that names it in the last seconds, and a worker in each."""
    path = tmp_path / "1.spool"
    late_ns = CREATED_NS + 2 * spool_tail.FIRST_LOOK_NS
    rows = [
        record(Kind.WORKER, 1, 0, 4712),
        record(Kind.RANK, 3, 8),
        *text(1, '{"what": "' + "x" * 50 + '"}'),
        record(Kind.GC, start_ns=late_ns),
        record(Kind.BLINDSPOT, 1, start_ns=late_ns),
        record(Kind.WORKER, 1, 1, 4713, start_ns=late_ns),
    ]
    path.write_bytes(header() + b"".join(rows))
    tail = SpoolTail(path)
    looks = [*look_until_counted(tail), tail.look()]
    notes = [look.notes for look in looks if look is not None]
    assert [note.rank for note in notes if note.rank is not None] == [3]
    assert sorted(each.pid for note in notes for each in note.workers) == [4712, 4713]
    assert [text[:9] for note in notes for text in note.blindspots] == ['{"what": ']


def test_a_blindspot_without_a_time_is_no_damage(tmp_path: Path) -> None:
    """The hooks write 0 for its start."""
    path = tmp_path / "1.spool"
    path.write_bytes(header() + b"".join(text(1, "{}")) + record(Kind.BLINDSPOT, 1, start_ns=0))
    tail = SpoolTail(path)
    look = tail.look()
    assert look is not None
    assert (look.notes.blindspots, tail.damaged) == (["{}"], 0)


def test_an_event_has_its_fields_by_name(tmp_path: Path) -> None:
    path = tmp_path / "1.spool"
    fields = wire.RECORD.pack(1, 2, 3, 4, 5, 6, 7, 8, int(Flag.TRAINING), int(Kind.WAIT))
    path.write_bytes(header() + fields + b"".join(text(1, "no event")))
    look = SpoolTail(path).look()
    assert look is not None
    assert look.events == [
        LiveEvent(
            start_ns=1,
            dur_ns=2,
            owner=3,
            samples=4,
            pause_kind=5,
            position=7,
            tid=8,
            flags=Flag.TRAINING,
            kind=Kind.WAIT,
        )
    ]
    assert type(look.events[0]) is LiveEvent


def test_a_note_that_very_many_records_name_is_given_out_once(tmp_path: Path) -> None:
    path = tmp_path / "1.spool"
    named = record(Kind.BLINDSPOT, 1) * 500
    path.write_bytes(header() + b"".join(text(1, "{}")) + named)
    tail = SpoolTail(path)
    looks = [tail.look()]
    with path.open("ab") as file:
        file.write(named)
    looks.append(tail.look())
    assert [look.notes.blindspots for look in looks if look is not None] == [["{}"], []]
