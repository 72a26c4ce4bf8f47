"""The spool keeps records through growth, threads and forks, and gives up quietly."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fuelline.record import spool as spooling
from fuelline.record.buffer import LEFT_OUT
from fuelline.record.spool import Spool
from fuelline.schema import wire
from tests.integration.harness import Left, read_spool, read_spools


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(f"{tmp_path}/spool")


def read(spool: Spool) -> Left:
    spool.write_buffered()
    assert spool.path is not None
    return read_spool(Path(spool.path).read_bytes())


def fill(spool: Spool, count: int) -> None:
    for number in range(count):
        spool.append(int(wire.Kind.GC), number, 1)


def test_a_process_with_nothing_to_say_leaves_no_file(spool: Spool, tmp_path: Path) -> None:
    assert spool.path is None
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_read_as_it_was_written(spool: Spool) -> None:
    spool.append(int(wire.Kind.WAIT), 2**62, 7, -1, 2, 3, 4, -5, int(wire.Flag.TRAINING))
    left = read(spool)
    assert left.records == [(2**62, 7, -1, 2, 3, 4, -5, threading.get_native_id(), 1, 1)]
    assert (left.pid, left.parent) == (os.getpid(), os.getppid())


@pytest.mark.parametrize("count", [1, spooling.UNHELD, spooling.UNHELD + 1, 20_000])
def test_no_record_is_lost_where_holding_begins(spool: Spool, count: int) -> None:
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
    page = open_page(spool)
    spool.buffer.phase = int(wire.Phase.COMPUTE)
    assert os.pread(page, 1, wire.PHASE_OFFSET)[0] == wire.Phase.COMPUTE
    os.close(page)


def open_page(spool: Spool) -> int:
    assert spool.path is not None
    data = Path(spool.path).read_bytes()
    trainer, _, _, number, *_ = wire.NOTES.unpack_from(data, wire.NOTES_OFFSET)
    assert trainer == 4711
    return wire.open_live(os.getpid(), number - 1)


def test_the_page_of_the_phase_cannot_be_cut_short(spool: Spool) -> None:
    spool.set_trainer(4711)
    page = open_page(spool)
    with pytest.raises(PermissionError):
        os.truncate(f"/proc/self/fd/{page}", 0)
    os.close(page)


def test_a_descriptor_that_is_another_file_by_now_is_not_taken_for_the_page(tmp_path: Path) -> None:
    with (tmp_path / "other").open("wb") as other, pytest.raises(FileNotFoundError):
        wire.open_live(os.getpid(), other.fileno())


def test_without_memory_to_share_there_is_no_phase_and_all_the_rest(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(os, "memfd_create", refuse)
    spool.set_trainer(4711)
    spool.buffer.phase = int(wire.Phase.COMPUTE)
    fill(spool, 1)
    assert len(read(spool).records) == 1


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_a_spool_that_is_cut_under_the_job_costs_records_only(spool: Spool, size: int) -> None:
    fill(spool, 2000)
    spool.set_trainer(4711)
    assert spool.path is not None
    os.truncate(spool.path, size)
    spool.buffer.phase = int(wire.Phase.COMPUTE)
    fill(spool, 2000)
    spool.write_buffered()
    assert Path(spool.path).stat().st_size > 2000 * wire.RECORD_BYTES


REPLACED = """
import os, sys
from fuelline.record.buffer import LEFT_OUT
from fuelline.record.spool import Spool
spool = Spool(sys.argv[1])
spool.append(1, 1, 1)
os.unlink(spool.path)
os.mkfifo(spool.path)
spool.append(1, 1, 1)
reader = os.open(spool.path, os.O_RDONLY | os.O_NONBLOCK)
spool.append(1, 1, 1)
print(spool._dropped, os.read(reader, 100))
"""


@pytest.mark.parametrize("left_out", ["", "1"])
def test_a_spool_that_is_replaced_by_a_pipe_is_not_waited_for(
    tmp_path: Path, left_out: str
) -> None:
    command = [sys.executable, "-c", REPLACED, str(tmp_path)]
    env = {**os.environ, LEFT_OUT: left_out}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=30)
    assert (done.stdout, done.stderr) == ("2 b''\n", "")


def test_a_lease_that_another_process_has_of_the_spool_costs_nothing(
    spool: Spool,
) -> None:
    fill(spool, 1)
    assert spool.path is not None
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with Path(spool.path).open("rb") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fill(spool, 10)
    signal.signal(signal.SIGIO, before)
    assert len(read(spool).records) == 11


def test_a_spool_that_is_deleted_is_not_made_again(spool: Spool) -> None:
    fill(spool, 1)
    assert spool.path is not None
    Path(spool.path).unlink()
    fill(spool, 2000)
    assert not Path(spool.path).exists()


def test_a_link_in_place_of_a_spool_is_not_written_through(spool: Spool, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    fill(spool, 1)
    assert spool.path is not None
    Path(spool.path).unlink()
    Path(spool.path).symlink_to(victim)
    fill(spool, 2000)
    assert victim.read_bytes() == b"mine"


def test_a_spool_is_for_its_owner_alone(spool: Spool) -> None:
    fill(spool, 1)
    assert spool.path is not None
    assert Path(spool.path).stat().st_mode & 0o777 == 0o600
    assert Path(spool.path).parent.stat().st_mode & 0o777 == 0o700


def test_the_cap_is_kept_and_what_follows_is_counted(tmp_path: Path) -> None:
    spool = Spool(f"{tmp_path}/spool", cap_bytes=100_000)
    fill(spool, 5000)
    left = read(spool)
    assert left.stopped == errno.EFBIG
    assert 800 < len(left.records) <= 100_000 // wire.RECORD_BYTES
    assert left.dropped == 5000 - len(left.records)


def refuse_writes(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """As the disk would: records are refused, the header's page is there already."""
    spill = spooling.spill

    def refusing(path: str, at: int, records: bytes, notes_at: int, notes: bytes) -> int:
        return number if records else spill(path, at, records, notes_at, notes)

    monkeypatch.setattr(spooling, "spill", refusing)


def test_a_full_disk_is_noted_and_never_raised(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spool, 3)
    refuse_writes(monkeypatch, errno.ENOSPC)
    fill(spool, 1000)
    left = read(spool)
    assert left.stopped == errno.ENOSPC
    assert (len(left.records), left.dropped) == (3, 1000)


def test_a_disk_that_is_full_from_the_start_leaves_no_empty_file(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refuse_writes(monkeypatch, errno.EDQUOT)
    fill(spool, 10)
    spool.text("lost")
    spool.set_trainer(1)
    assert list(tmp_path.glob("spool/*")) == []


def test_records_wait_while_the_job_has_all_its_descriptors_in_use(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spool, 1)
    with monkeypatch.context() as full:
        refuse_writes(full, errno.EMFILE)
        fill(spool, 100)
    left = read(spool)
    assert (len(left.records), left.dropped, left.stopped) == (101, 0, 0)


def test_records_that_would_wait_for_ever_are_counted(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spool, 1)
    with monkeypatch.context() as full:
        refuse_writes(full, errno.EMFILE)
        fill(spool, 10_000)
    left = read(spool)
    assert left.dropped > 9000
    assert len(left.records) + left.dropped == 10_001


@pytest.mark.bare
def test_an_interrupt_at_any_moment_stops_nothing(tmp_path: Path) -> None:
    """Handlers of signals raise in the midst of writing; afterwards records are kept as before."""
    spool, left, is_inside = Spool(f"{tmp_path}/spool"), 200, False

    def raise_again(*_: object) -> None:
        nonlocal left, is_inside
        if is_inside:
            left, is_inside = left - 1, False
            raise InterruptedError("by the job's own handler")

    before = signal.signal(signal.SIGALRM, raise_again)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0003)
    while left > 0:
        try:
            is_inside = True
            fill(spool, 100)
            is_inside = False
        except InterruptedError:  # noqa: PERF203 - each may be hit
            pass
    is_inside = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    fill(spool, 1)  # the last interrupt may have come between the records and the note of their end
    kept = len(read(spool).records)
    fill(spool, 1000)
    assert len(read(spool).records) == kept + 1000


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


def test_a_record_in_the_midst_of_writing_is_written_next_and_makes_no_second_file(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a garbage collection does, whose hook appends at any moment."""
    spill = spooling.spill

    def interrupted(*arguments: object) -> int:
        with monkeypatch.context() as quiet:
            quiet.setattr(spooling, "spill", spill)
            fill(spool, 1)
        return spill(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(spooling, "spill", interrupted)
    fill(spool, 1)
    fill(spool, 1)
    monkeypatch.undo()
    spool.write_buffered()
    (left,) = read_spools(tmp_path)
    assert (len(left.records), left.dropped) == (4, 0)


def test_a_silent_child_leaves_no_file(spool: Spool, tmp_path: Path) -> None:
    fill(spool, 1)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(tmp_path.glob("spool/*"))) == 1


def test_only_the_page_of_the_phase_stays_open(spool: Spool) -> None:
    before = count_open()
    fill(spool, 30_000)
    assert count_open() == before
    spool.set_trainer(1)
    spool.set_trainer(2)
    assert count_open() == before + 1


def count_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


TAIL = wire.tail(wire.Kind.BACKWARD)


def hold(spool: Spool, count: int, *, pause_ns: int = 1000) -> None:
    """Hold records as a hook does, one every `pause_ns`."""
    for number in range(count):
        now_ns = number * pause_ns
        if spool.buffer.keep(now_ns, now_ns + 1, number, 0, 0, 0, 0, 7 | TAIL):
            spool.write_buffered()


@pytest.mark.parametrize("count", [1, 16, 100, 20_000])
def test_held_records_are_written_in_order(spool: Spool, count: int) -> None:
    hold(spool, count)
    spool.write_buffered()
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
        if spool.buffer.keep(now_ns, now_ns, 0, 0, 0, 0, 0, 7 | TAIL):
            spool.write_buffered()
            held = 0
        return held

    assert {held_after(quick) for _ in range(spooling.UNHELD + 1)} == {0}
    assert [held_after(quick) for _ in range(102)] == [*range(1, 100), 0, 1, 2]
    assert [held_after(pause) for pause in (slow, slow, quick, quick)] == [0, 0, 0, 1]


def test_a_forked_child_does_not_write_what_its_parent_holds(spool: Spool, tmp_path: Path) -> None:
    spool.append(1, 2, 3)
    spool.buffer.keep(0, 1, 0, 0, 0, 0, 0, 7 | TAIL)
    child = os.fork()
    if not child:
        spool.write_buffered()
        os._exit(len(spool.buffer.take()))
    assert os.waitpid(child, 0)[1] == 0
    spool.write_buffered()
    (left,) = read_spools(tmp_path)
    assert len(left.records) == 2
