"""The spool keeps records through growth, threads and forks, and gives up quietly."""

import errno
import os
import threading
from pathlib import Path

import pytest

from fuelline.record import spool as spooling
from fuelline.record.spool import Spool
from fuelline.schema import wire
from tests.integration.harness import Left, read_spool, read_spools

FIRST = wire.FIRST_SEGMENT_BYTES // wire.RECORD_BYTES
SECOND = wire.SECOND_SEGMENT_BYTES // wire.RECORD_BYTES


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(f"{tmp_path}/spool")


def read(spool: Spool) -> Left:
    assert spool.path is not None
    return read_spool(Path(spool.path).read_bytes())


def fill(spool: Spool, count: int) -> None:
    for number in range(count):
        spool.append(int(wire.Kind.GC), number, 1)


def test_a_process_with_nothing_to_say_leaves_no_file(spool: Spool, tmp_path: Path) -> None:
    assert spool.path is None
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_read_as_it_was_written(spool: Spool) -> None:
    spool.append(int(wire.Kind.NEXT), 2**62, 7, -1, 2, 3, 4, -5, int(wire.Flag.GRAD))
    left = read(spool)
    assert left.records == [(2**62, 7, -1, 2, 3, 4, -5, threading.get_native_id(), 1, 1)]
    assert (left.pid, left.parent) == (os.getpid(), os.getppid())


def test_the_first_file_is_small(spool: Spool) -> None:
    fill(spool, FIRST)
    assert spool.path is not None
    assert Path(spool.path).stat().st_size == wire.HEADER_BYTES + wire.FIRST_SEGMENT_BYTES


@pytest.mark.parametrize("count", [FIRST, FIRST + 1, FIRST + SECOND, FIRST + SECOND + 1, 20_000])
def test_no_record_is_lost_where_segments_meet(spool: Spool, count: int) -> None:
    fill(spool, count)
    assert [record[0] for record in read(spool).records] == list(range(count))


@pytest.mark.parametrize("text", ["", "x" * 40, "x" * 41, "größer 🚗 " * 30])
def test_texts_come_back_whole(spool: Spool, text: str) -> None:
    first, second = spool.text(text), spool.text("another")
    left = read(spool)
    assert left.texts[first].decode() == text
    assert left.texts[second] == b"another"


def test_an_endless_text_is_cut(spool: Spool) -> None:
    number = spool.text("x" * 100_000)
    assert len(read(spool).texts[number]) == spooling.TEXT_CAP_BYTES


def test_names_that_are_not_text_do_not_stop_it(spool: Spool) -> None:
    number = spool.text("bad \udcff name")
    assert read(spool).texts[number] == b"bad ? name"


def test_the_phase_can_be_read_while_the_process_lives(spool: Spool) -> None:
    spool.set_trainer(4711)
    spool.held.phase = int(wire.Phase.COMPUTE)
    assert spool.path is not None
    data = Path(spool.path).read_bytes()
    assert read_spool(data).phase == wire.Phase.COMPUTE
    assert wire.WORD.unpack_from(data, wire.PHASE_TID_OFFSET) == (4711,)


def test_the_cap_is_kept_and_what_follows_is_counted(tmp_path: Path) -> None:
    spool = Spool(f"{tmp_path}/spool", cap_bytes=100_000)
    fill(spool, 5000)
    left = read(spool)
    assert left.stopped == errno.EFBIG
    assert len(left.records) == FIRST + SECOND
    assert left.dropped == 5000 - len(left.records)


def test_a_full_disk_is_noted_and_never_raised(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spool, 1)

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    fill(spool, 1000)
    left = read(spool)
    assert left.stopped == errno.ENOSPC
    assert (len(left.records), left.dropped) == (FIRST, 1001 - FIRST)


def test_a_disk_that_is_full_from_the_start_leaves_no_empty_file(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EDQUOT, "quota")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    fill(spool, 10)
    spool.text("lost")
    spool.set_trainer(1)
    assert list(tmp_path.glob("spool/*")) == []


def test_filesystems_without_fallocate_are_filled_with_zeros(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    fill(spool, 3000)
    assert spool.path is not None
    assert len(read(spool).records) == 3000
    file = Path(spool.path).stat()
    assert file.st_blocks * 512 >= file.st_size


def test_space_is_claimed_before_it_is_mapped(spool: Spool) -> None:
    fill(spool, FIRST + 1)
    assert spool.path is not None
    file = Path(spool.path).stat()
    assert file.st_blocks * 512 >= file.st_size


@pytest.mark.parametrize("folder", ["/proc/nowhere/spool", "/dev/null/spool"])
def test_a_folder_that_cannot_be_made_is_silence(folder: str) -> None:
    spool = Spool(folder)
    fill(spool, 10)
    assert spool.path is None


def test_the_folder_of_the_run_itself_is_not_made(tmp_path: Path) -> None:
    fill(Spool(f"{tmp_path}/deleted-run/spool"), 1)
    assert list(tmp_path.iterdir()) == []


def test_threads_lose_no_record_and_mix_none(spool: Spool) -> None:
    def work(number: int) -> None:
        for count in range(2000):
            spool.append(int(wire.Kind.GC), number, count, number, number, number, number, number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = read(spool).records
    assert sorted(record[:2] for record in records) == [
        (n, c) for n in range(8) for c in range(2000)
    ]
    assert all(set(record[2:7]) == {record[0]} for record in records)


def test_a_forked_child_writes_to_its_own_file(spool: Spool, tmp_path: Path) -> None:
    fill(spool, 3)
    child = os.fork()
    if not child:
        fill(spool, 1000)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    fill(spool, 2)
    forked, parent = sorted(read_spools(tmp_path), key=lambda left: left.pid == os.getpid())
    assert (parent.pid, len(parent.records)) == (os.getpid(), 5)
    assert (forked.pid, forked.parent, len(forked.records)) == (child, os.getpid(), 1000)
    assert {record[7] for record in forked.records} == {child}


def test_a_record_in_the_midst_of_growing_is_counted_and_makes_no_second_file(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a garbage collection does, whose hook appends at any moment."""
    allocate = os.posix_fallocate

    def interrupted(fd: int, start: int, size: int) -> None:
        fill(spool, 1)
        allocate(fd, start, size)

    monkeypatch.setattr(os, "posix_fallocate", interrupted)
    fill(spool, FIRST)
    (left,) = read_spools(tmp_path)
    assert left.dropped == 2
    assert len(left.records) == FIRST


def test_a_silent_child_leaves_no_file(spool: Spool, tmp_path: Path) -> None:
    fill(spool, 1)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(tmp_path.glob("spool/*"))) == 1


def test_no_descriptor_stays_open(spool: Spool) -> None:
    before = {file.name for file in Path("/proc/self/fd").iterdir()}
    fill(spool, 30_000)
    assert {file.name for file in Path("/proc/self/fd").iterdir()} <= before


def test_old_segments_are_unmapped(spool: Spool) -> None:
    fill(spool, 60_000)
    assert spool.path is not None
    maps = Path("/proc/self/maps").read_text()
    # Eight in all; the header's stays, the current one, some for stragglers, and the one that is
    # unmapped with the next mapping.
    assert maps.count(spool.path) == 3 + spooling.OLDER_SEGMENTS


TAIL = wire.tail(wire.Kind.BACKWARD)


def hold(spool: Spool, count: int, *, pause_ns: int = 1000) -> None:
    """Hold records as a hook does, one every `pause_ns`."""
    for number in range(count):
        now_ns = number * pause_ns
        if spool.held.keep(now_ns, now_ns + 1, number, 0, 0, 0, 0, 7 | TAIL):
            spool.write_held()


@pytest.mark.parametrize("count", [1, 16, 100, 20_000])
def test_held_records_are_written_in_order(spool: Spool, count: int) -> None:
    hold(spool, count)
    spool.write_held()
    records = read(spool).records
    assert [record[2] for record in records] == list(range(count))
    assert {record[7:] for record in records} == {(7, 0, wire.Kind.BACKWARD)}


def test_records_that_come_quickly_are_held_and_slow_ones_written_at_once(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 0
    monkeypatch.setattr(spooling.time, "monotonic_ns", lambda: now_ns)
    quick, slow = spooling.HOLD_NS // 100, spooling.HOLD_NS * 2

    held = 0

    def held_after(pause_ns: int) -> int:
        nonlocal now_ns, held
        now_ns += pause_ns
        held += 1
        if spool.held.keep(now_ns, now_ns, 0, 0, 0, 0, 0, 7 | TAIL):
            spool.write_held()
            held = 0
        return held

    assert {held_after(quick) for _ in range(spooling.UNHELD + 1)} == {0}
    assert [held_after(quick) for _ in range(102)] == [*range(1, 100), 0, 1, 2]
    assert [held_after(pause) for pause in (slow, slow, quick, quick)] == [0, 0, 0, 1]


def test_a_forked_child_does_not_write_what_its_parent_holds(spool: Spool, tmp_path: Path) -> None:
    spool.append(1, 2, 3)
    spool.held.keep(0, 1, 0, 0, 0, 0, 0, 7 | TAIL)
    child = os.fork()
    if not child:
        spool.write_held()
        os._exit(len(spool.held.take()))
    assert os.waitpid(child, 0)[1] == 0
    spool.write_held()
    (left,) = read_spools(tmp_path)
    assert len(left.records) == 2
