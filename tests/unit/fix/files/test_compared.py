"""Files that are too large for each process to compare are compared all the same, once."""

import os
import stat
import sys
import time
import zlib
from hashlib import blake2b
from pathlib import Path

import pytest

from fuelline.cli import main
from fuelline.cli.record import serving
from fuelline.fix.files import compared, packing, shards
from fuelline.fix.files.checking import RECORD_S, check_pack, compare_large, open_records
from fuelline.fix.files.compared import ComparedFiles, find_state
from fuelline.fix.files.pack_index import Packed, write_index
from fuelline.fix.files.packed import PackServer
from fuelline.fix.files.shards import Entry, Pack
from fuelline.schema.errors import InputError
from fuelline.schema.shards import CHECKSUM_AT, HEADER, INDEX

LARGE = bytes(range(256)) * (5 << 12)
SHARD = "shard-00000"


def quiet(*_: int) -> None:
    pass


@pytest.fixture(autouse=True)
def small_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 5 MiB is as one of 300 MiB, and at rest from the beginning."""
    monkeypatch.setattr(compared, "RECORDED_BYTES", 4 << 20)
    monkeypatch.setattr(compared, "SETTLED_NS", 0)
    monkeypatch.setattr(compared, "_find_type", lambda _: "ext4")  # wherever the tests run


find_type = compared._find_type


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    root.mkdir()
    (root / "large").write_bytes(LARGE)
    (root / "small").write_bytes(b"small")
    return root


@pytest.fixture
def target(tmp_path: Path, source: Path) -> Path:
    packing.pack(source, tmp_path / "pack", quiet)
    return tmp_path / "pack"


@pytest.fixture
def records(store: Path) -> Path:
    return store / "compared"


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """The large files that were read to be compared."""
    found: list[Entry] = []
    plain = Pack._is_right_large

    def count(self: Pack, descriptor: int, entry: Entry, tell: object) -> bool:
        found.append(entry)
        return plain(self, descriptor, entry, tell)  # type: ignore[arg-type]

    monkeypatch.setattr(Pack, "_is_right_large", count)
    return found


def flip(path: Path, at: int = 3 << 20) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    await_step(path, before)


def await_step(path: Path, before: os.stat_result) -> None:
    """The clock of file systems has steps of some milliseconds, and `SETTLED_NS` is 0 here."""
    while (now := path.stat()).st_ctime_ns == before.st_ctime_ns:
        os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns))


def flip_unseen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a disk does: no time of the file changes. Here `fstat` tells the old ones."""
    plain, old = os.fstat, path.stat()
    flip(path)
    inode = path.stat().st_ino
    monkeypatch.setattr(
        os, "fstat", lambda number: old if plain(number).st_ino == inode else plain(number)
    )


def served(target: Path, records: Path | None = None, run: str = "") -> bytes | None:
    """What a new process of the job gets; None: it reads the source."""
    folder = None if records is None else str(records)
    server = PackServer(str(target), ComparedFiles(folder, run))
    descriptor = server.open(str(target.parent / "source" / "large"))
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def start(target: Path) -> int:
    """A job of `true`, recorded into a folder of its own."""
    run = target.parent / f"run-{time.monotonic_ns()}"
    return main(["run", "--quiet", "--run-dir", str(run), "--packed", str(target), "true"])


def make_old(target: Path) -> None:
    """A pack of version 1."""
    with_old, source = [], target.parent / "source"
    for name, entry in Pack(str(target)).rows(0):
        content = (source / os.fsdecode(name)).read_bytes() if stat.S_ISREG(entry.mode) else b""
        digest = blake2b(content, digest_size=8).digest()
        place = entry.shard, entry.offset, entry.size, entry.mtime_ns, entry.mode
        with_old.append(Packed(os.fsdecode(name), *place, digest))
    write_index(target, str(source), with_old)
    index = bytearray((target / INDEX).read_bytes())
    head = list(HEADER.unpack_from(index))
    head[1:3] = 1, 0
    HEADER.pack_into(index, 0, *head)
    (target / INDEX).write_bytes(index)


@pytest.mark.parametrize("version", [1, 2])
def test_a_flipped_bit_in_a_file_of_any_size_never_reaches_the_job(
    source: Path, target: Path, version: int
) -> None:
    if version == 1:
        make_old(target)
    assert served(target) == LARGE
    flip(target / SHARD)
    assert served(target) is None
    (source / "large").unlink()
    with pytest.raises(OSError, match="other bytes than were packed"):
        served(target)


@pytest.mark.parametrize("version", [1, 2])
def test_a_damaged_large_file_starts_nothing(
    target: Path,
    records: Path,
    version: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if version == 1:
        make_old(target)
    flip(target / SHARD)
    assert start(target) == 3
    told = capsys.readouterr().err
    assert "comparing 1 large file, 5.2 MB, with the checksums" in told
    assert f"{SHARD} has other bytes than were packed" in told
    assert not list(target.parent.glob("run-*"))
    assert not records.exists()


@pytest.mark.integration
def test_a_file_is_compared_before_the_first_job_and_by_no_process_again(
    target: Path, records: Path, readings: list[Entry], capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(target) == 0
    assert len(readings) == 1
    assert served(target, records) == LARGE
    capsys.readouterr()
    assert start(target) == 0
    assert "comparing" not in capsys.readouterr().err
    assert len(readings) == 1
    assert stat.S_IMODE(records.stat().st_mode) == 0o700
    (record,) = records.iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert record.read_bytes() == b""


@pytest.mark.parametrize("words", [[], ["--check"]])
@pytest.mark.integration
def test_what_pack_read_need_not_be_read_before_the_job(
    source: Path, tmp_path: Path, store: Path, readings: list[Entry], words: list[str]
) -> None:
    target = tmp_path / "pack"
    command = ["pack", str(source), "-o", str(target)]
    if words:
        packing.pack(source, target, quiet)
    assert main([*command, *words]) == 0
    readings.clear()
    assert start(target) == 0
    assert readings == []


@pytest.mark.integration
def test_what_an_interrupted_pack_left_is_compared_when_it_is_taken_over(
    source: Path, tmp_path: Path, store: Path, readings: list[Entry]
) -> None:
    def stop(done: int, of: int) -> None:
        if done == of:
            raise KeyboardInterrupt

    target = tmp_path / "pack"
    with pytest.raises(KeyboardInterrupt):
        packing.pack(source, target, stop)
    assert main(["pack", str(source), "-o", str(target)]) == 0
    assert start(target) == 0
    assert readings == []


def test_a_pack_without_large_files_makes_no_store(tmp_path: Path, store: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_bytes(b"x")
    words = ["pack", str(tmp_path / "data"), "-o", str(tmp_path / "pack")]
    assert main(words) == 0
    assert main([*words, "--check"]) == 0
    assert not store.exists()


def touch(path: Path) -> None:
    await_step(path, path.stat())


def replace(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.write_bytes(path.with_name("moved").read_bytes())


def put_link(path: Path) -> None:
    before = path.stat()
    path.with_name("link").hardlink_to(path)
    await_step(path, before)


@pytest.mark.parametrize("change", [touch, replace, put_link])
def test_a_file_that_was_touched_since_is_compared_by_the_process_that_opens_it(
    target: Path, records: Path, readings: list[Entry], change: object
) -> None:
    compare_large(target, open_records(records), quiet)
    change(target / SHARD)  # type: ignore[operator]
    assert served(target, records) == LARGE
    assert len(readings) == 2
    assert served(target, records) == LARGE  # which has recorded it
    assert len(readings) == 2
    flip(target / SHARD)
    assert served(target, records) is None


def test_a_change_through_another_link_is_noticed(
    target: Path, tmp_path: Path, records: Path
) -> None:
    (tmp_path / "link").hardlink_to(target / SHARD)
    compare_large(target, open_records(records), quiet)
    before = (target / SHARD).stat()
    flip(tmp_path / "link")
    os.utime(tmp_path / "link", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert served(target, records) is None


def test_the_record_is_of_the_checksum_too(target: Path, records: Path) -> None:
    """The same shard under an index that expects other bytes."""
    compare_large(target, open_records(records), quiet)
    index = bytearray((target / INDEX).read_bytes())
    crc = zlib.crc32(LARGE).to_bytes(4, "little")
    at = index.index(crc)
    index[at] ^= 1
    index[CHECKSUM_AT : CHECKSUM_AT + 4] = bytes(4)
    index[CHECKSUM_AT : CHECKSUM_AT + 4] = zlib.crc32(index).to_bytes(4, "little")
    (target / INDEX).write_bytes(index)
    assert served(target, records) is None
    with pytest.raises(InputError, match="other bytes"):
        compare_large(target, open_records(records), quiet)


def no_boot_id(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared, "BOOT_ID", (str(records.parent), "none"))


def empty_boot_id(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (records.parent / "boot_id").write_bytes(b"\n")
    monkeypatch.setattr(compared, "BOOT_ID", (str(records.parent), "boot_id"))


def another_boot(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (records.parent / "boot_id").write_bytes(b"another\n")
    monkeypatch.setattr(compared, "BOOT_ID", (str(records.parent), "boot_id"))


def garbled(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = records.iterdir()
    record.rename(records / record.name[::-1])


def a_folder(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = records.iterdir()
    record.unlink()
    record.mkdir()


def a_link(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = records.iterdir()
    record.rename(records.parent / "moved")
    record.symlink_to(records.parent / "moved")


def a_fifo(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = records.iterdir()
    record.unlink()
    os.mkfifo(record)


def writable_record(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = records.iterdir()
    record.chmod(0o602)


def writable_folder(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records.chmod(0o770)


def linked_folder(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records.rename(records.parent / "moved")
    records.symlink_to(records.parent / "moved")


def another_owner(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)


NOT_BELIEVED = [
    no_boot_id, empty_boot_id, another_boot, garbled, a_folder, a_link, a_fifo, writable_record,
    writable_folder, linked_folder, another_owner,
]  # fmt: skip


@pytest.mark.parametrize("spoil", NOT_BELIEVED)
def test_a_record_that_anything_is_wrong_with_counts_as_none(
    target: Path,
    records: Path,
    readings: list[Entry],
    spoil: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compare_large(target, open_records(records), quiet)
    spoil(records, monkeypatch)  # type: ignore[operator]
    assert served(target, records) == LARGE
    assert len(readings) == 2


@pytest.mark.parametrize("where", ["/proc/none/home", "/dev/null/home", "/sys/home"])
@pytest.mark.integration
def test_where_nothing_can_be_recorded_the_job_compares_by_itself(
    target: Path,
    where: str,
    readings: list[Entry],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FUELLINE_HOME", where)
    assert start(target) == 0
    assert "each process of the job that opens one of them compares it again" in (
        capsys.readouterr().err
    )
    assert served(target, Path(where, "compared")) == LARGE
    assert len(readings) == 2
    flip(target / SHARD)
    assert served(target, Path(where, "compared")) is None


def test_a_file_that_was_written_a_moment_ago_is_not_recorded(
    source: Path, target: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be written to again and have the same times."""
    monkeypatch.setattr(compared, "SETTLED_NS", 3600 * 10**9)
    server = PackServer(str(target), ComparedFiles(str(records)))
    compare_large(target, open_records(records), quiet)
    assert not records.exists()
    descriptor = server.open(str(source / "large"))
    assert descriptor is not None
    os.close(descriptor)
    flip_unseen(target / SHARD, monkeypatch)
    assert server.open(str(source / "large")) is None


def test_a_file_that_changes_while_it_is_compared_is_left_for_the_source(
    target: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Pack._is_right_large

    def touched(self: Pack, descriptor: int, entry: Entry, tell: object) -> bool:
        is_right = plain(self, descriptor, entry, tell)  # type: ignore[arg-type]
        flip(target / SHARD)
        flip(target / SHARD)
        return is_right

    monkeypatch.setattr(Pack, "_is_right_large", touched)
    assert served(target, records) is None
    assert not records.exists()


def test_the_bytes_are_those_of_the_file_that_was_compared(
    target: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file takes its name while it is read."""
    plain = Pack._is_right_large

    def replaced(self: Pack, descriptor: int, entry: Entry, tell: object) -> bool:
        if (target / SHARD).read_bytes() == LARGE:
            (target / SHARD).unlink()
            (target / SHARD).write_bytes(bytes(len(LARGE)))
        return plain(self, descriptor, entry, tell)  # type: ignore[arg-type]

    monkeypatch.setattr(Pack, "_is_right_large", replaced)
    assert served(target, records) in (None, LARGE)
    assert served(target, records) is None


def test_holes_in_a_shard_are_bytes_like_others(
    source: Path, tmp_path: Path, records: Path
) -> None:
    (source / "large").write_bytes(bytes(5 << 20))
    target = tmp_path / "pack"
    packing.pack(source, target, quiet)
    os.truncate(target / SHARD, 0)
    os.truncate(target / SHARD, 5 << 20)
    compare_large(target, open_records(records), quiet)
    assert served(target, records) == bytes(5 << 20)
    flip(target / SHARD)
    assert served(target, records) is None


def test_check_believes_no_record_and_takes_back_a_wrong_one(
    source: Path, target: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_large(target, open_records(records), quiet)
    flip_unseen(target / SHARD, monkeypatch)
    compare_large(target, open_records(records), quiet)  # which cannot know
    differs = check_pack(source, target, quiet, open_records(records, believes=False))
    assert differs == [("large", f"{SHARD} has other bytes than were packed")]
    with pytest.raises(InputError, match="other bytes"):
        compare_large(target, open_records(records), quiet)


def test_records_are_deleted_when_they_are_old_and_nothing_else_is(records: Path) -> None:
    records.mkdir(parents=True, mode=0o700)
    old, new, other = records / ("0" * 40), records / ("1" * 40), records / "notes"
    for path in (old, new, other):
        path.touch()
    for path in (old, other):
        os.utime(path, (0, time.time() - RECORD_S - 60))
    open_records(records)
    assert sorted(records.iterdir()) == [new, other]


def test_two_that_compare_at_once_record_the_same(target: Path, records: Path) -> None:
    both = [open_records(records), open_records(records)]
    with (target / SHARD).open("rb") as file:
        state = find_state(file.fileno(), 2, b"digest")
        for each in both:
            assert not each.has(state, file.fileno())
        for each in both:
            each.add(state, file.fileno(), time.time_ns())
            assert each.problem is None
        assert len(list(records.iterdir())) == 1
        assert ComparedFiles(str(records)).has(state, file.fileno())


def test_where_changes_may_not_show_a_record_is_for_one_run(
    target: Path, records: Path, readings: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compared, "TELLING_TYPES", frozenset())
    compare_large(target, open_records(records, "first"), quiet)
    assert served(target, records, "first") == LARGE
    assert len(readings) == 1
    assert served(target, records, "second") == LARGE
    assert len(readings) == 2
    unwritten = open_records(records)  # as `pack --check` has it
    compare_large(target, unwritten, quiet)
    assert len(readings) == 3
    assert unwritten.problem == "its file system may not show that a file changed"
    flip(target / SHARD)
    assert served(target, records, "first") is None


def test_the_type_of_a_file_system_is_that_of_the_open_file() -> None:
    with Path("/proc/self/status").open("rb") as file:
        assert find_type(file.fileno()) == "proc"
    reader, writer = os.pipe()
    assert find_type(reader) == ""  # on no mount that can be seen
    os.close(reader)
    os.close(writer)


@pytest.mark.integration
def test_a_long_comparison_tells_how_far_it_is(
    target: Path, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "PROGRESS_S", 0.0)
    assert start(target) == 0
    told = capsys.readouterr().err
    assert told.count(" of 5.2 MB compared") == 5
    assert "5.2 MB of 5.2 MB compared" in told


def test_ctrl_c_ends_a_comparison_with_130_and_starts_nothing(
    target: Path, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    monkeypatch.setattr(shards.zlib, "crc32", interrupt)
    monkeypatch.setattr("fuelline.fix.files.checking._sum_index", lambda pack: pack.checksum)
    monkeypatch.setattr("fuelline.fix.files.shards.hash_name", lambda _: 0)
    assert start(target) == 130
    assert not list(tmp_path.glob("run-*"))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_job_is_told_where_the_records_are(
    source: Path, target: Path, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (source / "large").unlink()
    code = f"""if True:
        import json, os
        plan = json.loads(os.environ["FUELLINE_PATHS"])
        print(plan["compared"]["folder"], len(plan["compared"]["run"]))
        print(len(open({str(source / "large")!r}, "rb").read()))
    """
    run = ["run", "--quiet", "--run-dir", str(target.parent / "run"), "--packed", str(target)]
    assert main([*run, "--", sys.executable, "-c", code]) == 0
    assert capfd.readouterr().out == f"{store / 'compared'} 16\n{len(LARGE)}\n"
