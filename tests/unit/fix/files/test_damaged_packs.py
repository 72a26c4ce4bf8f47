"""A damaged or made-up pack is refused; the job never hangs, crashes or gets other bytes."""

import json
import os
import random
import stat
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from fuelline.cli import main
from fuelline.fix.files import checking, packing, shards
from fuelline.fix.files.checking import check_pack, open_pack, spot_check
from fuelline.fix.files.holes import PIECE_BYTES, extend_by_zeros
from fuelline.fix.files.pack_index import Packed, write_index
from fuelline.fix.files.packed import PackServer
from fuelline.fix.files.shards import Pack
from fuelline.fix.job_site import PATHS_VARIABLE, SITE_DIR
from fuelline.schema import files
from fuelline.schema.errors import InputError
from fuelline.schema.shards import CHECKSUM_AT, ENTRY, HEADER, INDEX, JOURNAL, MAGIC, SLOT, round_up

FILES = {"a/one": b"one" * 500, "a/two": b"two" * 700, "three": b"", "large": bytes(5 << 20)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.fixture
def target(tmp_path: Path, source: Path) -> Path:
    packing.pack(source, tmp_path / "pack", lambda _done, _of: None)
    return tmp_path / "pack"


def seal(index: bytearray) -> bytes:
    """With a checksum that is right, as someone who means harm would."""
    index[CHECKSUM_AT : CHECKSUM_AT + 4] = bytes(4)
    index[CHECKSUM_AT : CHECKSUM_AT + 4] = zlib.crc32(index).to_bytes(4, "little")
    return bytes(index)


def parts(index: bytes) -> tuple[int, int, int]:
    """Where entries, slots and names begin."""
    _, _, _, count, slots, _, root_bytes = HEADER.unpack_from(index)
    entries = round_up(HEADER.size + root_bytes)
    return entries, entries + count * ENTRY.size, entries + count * ENTRY.size + slots * SLOT.size


def fill_slots(index: bytearray) -> None:
    _, slots, names = parts(index)
    index[slots:names] = SLOT.pack(1) * ((names - slots) // SLOT.size)


def lead_out(index: bytearray) -> None:
    _, slots, names = parts(index)
    index[slots:names] = SLOT.pack(0xFFFFFFF0) * ((names - slots) // SLOT.size)


def change_entry(field: int, value: int) -> Callable[[bytearray], None]:
    def change(index: bytearray) -> None:
        entries, slots, _ = parts(index)
        for at in range(entries, slots, ENTRY.size):
            row = list(ENTRY.unpack_from(index, at))
            row[field] = value
            ENTRY.pack_into(index, at, *row)

    return change


def change_header(field: int, value: int) -> Callable[[bytearray], None]:
    def change(index: bytearray) -> None:
        row = list(HEADER.unpack_from(index))
        row[field] = value
        HEADER.pack_into(index, 0, *row)

    return change


def climb(index: bytearray) -> None:
    at = index.index(b"a/one")
    index[at : at + 5] = b"../.."


def with_nul(index: bytearray) -> None:
    index[index.index(b"a/two")] = 0


def from_relative(index: bytearray) -> None:
    index[HEADER.size] = ord("x")


DAMAGES = {
    "no empty slot": fill_slots,
    "slots lead out": lead_out,
    "names lead out": change_entry(0, 1 << 60),
    "contents lead out": change_entry(1, 1 << 62),
    "no end of a size": change_entry(2, (1 << 64) - 1),
    "no such shard": change_entry(6, 77),
    "devices": change_entry(7, 0o060644),
    "names without end": change_entry(8, 65535),
    "a name that climbs": climb,
    "a name with NUL": with_nul,
    "a relative root": from_relative,
    "entries without end": change_header(3, 1 << 60),
    "slots without end": change_header(4, 1 << 60),
    "no slots": change_header(4, 0),
    "no entries": change_header(3, 0),
    "a root without end": change_header(6, 1 << 40),
    "a later version": change_header(1, 99),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_index_that_makes_no_sense_starts_nothing(
    target: Path, damage: str, version: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    index = bytearray((target / INDEX).read_bytes())
    change_header(1, version)(index)
    DAMAGES[damage](index)
    (target / INDEX).write_bytes(seal(index))
    words = ["run", "--run-dir", str(tmp_path / "run"), "--packed", str(target), "true"]
    assert main(words) == 3
    assert "is not a whole pack" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def write_folders(target: Path, names: list[str]) -> bytearray:
    """An index of folders alone, which need no shard."""
    target.mkdir(mode=0o700, exist_ok=True)
    write_index(target, "/x", [Packed(name, 0, 0, 0, 0, stat.S_IFDIR, bytes(8)) for name in names])
    return bytearray((target / INDEX).read_bytes())


@pytest.mark.parametrize("start", [0, 5000, -700])
def test_a_hash_table_in_which_searches_are_long_is_refused(tmp_path: Path, start: int) -> None:
    """All names side by side; at `start`, which may be before the end of the table."""
    count = checking.LONGEST_RUN + 1
    index = write_folders(tmp_path, [f"d{number}" for number in range(count)])
    _, at, end = parts(index)
    free = (end - at) // SLOT.size - count
    table = [*range(1, count + 1), *[0] * free]
    start %= len(table)
    index[at:end] = b"".join(map(SLOT.pack, table[-start:] + table[:-start]))
    (tmp_path / INDEX).write_bytes(seal(index))
    with pytest.raises(InputError, match="crowded together"):
        look_at(tmp_path)


def test_a_run_across_two_pieces_of_the_hash_table_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "_CHUNK", 64)
    test_a_hash_table_in_which_searches_are_long_is_refused(tmp_path, 30)


NAMING = {
    "counted": "{0:07}",
    "in folders": "train/n{1:08}/n{1:08}_{0}.JPEG",
    "by chance": "{2:032x}",
}


@pytest.mark.parametrize("naming", NAMING)
def test_honest_tables_pass_when_they_are_as_full_as_they_get(tmp_path: Path, naming: str) -> None:
    rng, many = random.Random(1), 1 << 17
    named = (NAMING[naming].format(i, i // 1300, rng.getrandbits(128)) for i in range(many))
    write_folders(tmp_path, [*named])
    look_at(tmp_path)


def test_every_flipped_bit_of_an_index_is_noticed(target: Path) -> None:
    whole = (target / INDEX).read_bytes()
    rng = random.Random(1)
    for at in rng.sample(range(len(whole)), min(200, len(whole))):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << rng.randrange(8)
        (target / INDEX).write_bytes(flipped)
        if HEADER.unpack_from(flipped)[1] != 1:  # version 1 has no checksum
            with pytest.raises(InputError, match="not a whole pack"), open_pack(target):
                pass


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_that_comes_while_the_job_runs_gives_the_source_or_an_error(
    source: Path, target: Path, damage: str
) -> None:
    index = bytearray((target / INDEX).read_bytes())
    server = PackServer(str(target))
    DAMAGES[damage](index)
    (target / INDEX).write_bytes(seal(index))  # the same file, so that the server sees it
    for name, content in FILES.items():
        if len(content) < 1 << 20:
            assert server.read(str(source / name)) in (None, content)
        descriptor = server.open(str(source / name))
        if descriptor is not None:
            with os.fdopen(descriptor, "rb") as file:
                assert file.read() == content
        server.status(str(source / name))
    server.list(str(source))


@pytest.mark.parametrize("name", [INDEX, "shard-00000"])
def test_a_pack_that_is_cut_short_under_a_job_is_left_for_the_source(
    source: Path, target: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    server = PackServer(str(target))
    os.truncate(target / name, 100)
    assert server.read(str(source / "a/one")) is None
    assert server.read(str(source / "a/two")) is None
    assert capfd.readouterr().err.count("read from the original folder") == 1
    (source / "a/one").unlink()
    with pytest.raises(OSError, match="the original is gone"):
        server.read(str(source / "a/one"))


def test_what_there_is_no_memory_for_is_read_from_the_source(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(shards, "hold_in_memory", refuse)
    assert PackServer(str(target)).open(str(source / "a/one")) is None


@pytest.mark.parametrize("state", ["none", "closed", "full"])
@pytest.mark.integration
def test_a_damaged_pack_is_left_for_the_source_also_without_standard_error(
    source: Path, target: Path, state: str
) -> None:
    os.truncate(target / "shard-00000", 100)
    job = f"import os; os.write(1, open({str(source / 'a/one')!r}, 'rb').read())"
    command = [sys.executable, "-c", f"import sys; sys.stderr.close(); {job}"]
    if state != "closed":
        away = "2>&-" if state == "none" else "2>/dev/full"
        command = ["sh", "-c", f'exec "$@" {away}', "sh", sys.executable, "-c", job]
    plan = {"packed": [str(target)], "cache": None}
    env = {**os.environ, PATHS_VARIABLE: json.dumps(plan), "PYTHONPATH": SITE_DIR}
    done = subprocess.run(command, env=env, capture_output=True, check=True)
    assert done.stdout == FILES["a/one"]


@pytest.mark.integration
def test_a_flipped_bit_in_a_shard_never_reaches_the_job(source: Path, target: Path) -> None:
    shard = bytearray((target / "shard-00000").read_bytes())
    at = shard.index(b"one")
    shard[at] ^= 1
    (target / "shard-00000").write_bytes(shard)
    job = f"print(open({str(source / 'a/one')!r}, 'rb').read() == {FILES['a/one']!r})"
    plan = {"packed": [str(target)], "cache": None}
    env = {**os.environ, PATHS_VARIABLE: json.dumps(plan), "PYTHONPATH": SITE_DIR}
    done = subprocess.run(
        [sys.executable, "-c", job], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
    assert "has other bytes than were packed" in done.stderr


@pytest.mark.parametrize("is_open_already", [False, True])
def test_a_flipped_bit_in_a_large_file_never_reaches_the_job(
    source: Path, target: Path, is_open_already: bool
) -> None:
    server = PackServer(str(target))
    if is_open_already:
        descriptor = server.open(str(source / "large"))
        assert descriptor is not None
        with os.fdopen(descriptor, "rb") as file:
            assert file.read() == FILES["large"]
    with (target / "shard-00001").open("r+b") as shard:
        shard.seek(3 << 20)
        shard.write(b"x")
    assert server.open(str(source / "large")) is None
    (source / "large").unlink()
    with pytest.raises(OSError, match="other bytes than were packed"):
        server.open(str(source / "large"))


@pytest.mark.parametrize("name", [INDEX, "shard-00000", "shard-00001"])
@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "nothing"])
def test_what_is_no_regular_file_is_refused_and_does_not_hang(
    target: Path, tmp_path: Path, name: str, kind: str
) -> None:
    (target / name).rename(tmp_path / "moved")
    if kind == "link":
        (target / name).symlink_to(tmp_path / "moved")
    elif kind == "fifo":
        os.mkfifo(target / name)
    elif kind == "folder":
        (target / name).mkdir()
    with pytest.raises(InputError, match="not a whole pack"), open_pack(target):
        pass


def test_a_pack_of_version_1_is_still_read(tmp_path: Path, target: Path, source: Path) -> None:
    from hashlib import blake2b

    pack = Pack(str(target))
    old = [
        Packed(name.decode(), *entry[6:7], *entry[1:4], entry.mode, entry.digest())
        for name, entry in pack.rows(0)
    ]
    old = [
        each
        if not (content := FILES.get(each.name))
        else each._replace(digest=blake2b(content, digest_size=8).digest())
        for each in old
    ]
    old = [
        each._replace(digest=blake2b(b"", digest_size=8).digest()) if each.name == "three" else each
        for each in old
    ]
    write_index(target, str(source), old)
    index = bytearray((target / INDEX).read_bytes())
    change_header(1, 1)(index)
    change_header(2, 0)(index)
    (target / INDEX).write_bytes(index)
    with open_pack(target) as pack:
        for name, content in FILES.items():
            entry = pack.find(name)
            assert entry is not None
            with os.fdopen(pack.open(entry), "rb") as file:
                assert file.read() == content


def test_checking_a_pack_leaves_no_descriptor_open(source: Path, target: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    spot_check(target)
    check_pack(source, target, lambda _done, _of: None)
    (target / INDEX).write_bytes(b"damaged")
    with pytest.raises(InputError):
        spot_check(target)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_files_from_before_1970_can_be_packed(tmp_path: Path) -> None:
    source = tmp_path / "old"
    source.mkdir()
    (source / "file").write_bytes(b"x")
    os.utime(source / "file", ns=(-(10**18), -(10**18)))
    packing.pack(source, tmp_path / "pack", lambda _done, _of: None)
    with open_pack(tmp_path / "pack") as pack:
        entry = pack.find("file")
    assert entry is not None
    assert entry.mtime_ns == -(10**18)


def plant_journal(folder: Path, source: Path, content: bytes) -> None:
    """What says that `a/one` is packed already, with other bytes."""
    from fuelline.schema.shards import Digest

    digest = Digest()
    digest.update(content)
    status = (source / "a/one").stat()
    row = ["a/one", 0, 0, len(content), status.st_mtime_ns, status.st_mode, digest.digest().hex()]
    (folder / JOURNAL).write_text(json.dumps(row) + "\n")
    (folder / "shard-00000").write_bytes(content)


def test_a_planted_journal_is_not_believed(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "planted"
    folder.mkdir()
    plant_journal(folder, source, b"EVIL" * 375)
    assert main(["pack", str(source), "-o", str(folder)]) == 4
    assert not (folder / INDEX).exists()


@pytest.mark.parametrize(
    "row",
    [
        ["a/one", 0, 0, 10**9, 1, 33188, "00" * 8],
        ["a/one", 9, 0, 1, 1, 33188, "00" * 8],
        ["a/one", -1, -5, 1, 1, 33188, "00" * 8],
        ["a/one", "0", 0, 1, 1, 33188, "00" * 8],
        [5, 0, 0, 1, 1, 33188, "00" * 8],
        ["a/one", 0, 0, 1, 1, 33188, "zz"],
        {"a": 1},
        7,
    ],
)
def test_a_journal_that_makes_no_sense_costs_only_what_was_done(
    source: Path, target: Path, row: object
) -> None:
    (target / INDEX).unlink()
    (target / JOURNAL).write_text(json.dumps(row) + "\n" + "[" * 100_000 + "\n")
    packing.pack(source, target, lambda _done, _of: None)
    assert main(["pack", str(source), "-o", str(target), "--check"]) == 0


def test_a_journal_of_noise_costs_only_what_was_done(source: Path, target: Path) -> None:
    (target / INDEX).unlink()
    (target / JOURNAL).write_bytes(random.Random(1).randbytes(5000) + b'["\xff\n')
    packing.pack(source, target, lambda _done, _of: None)
    assert main(["pack", str(source), "-o", str(target), "--check"]) == 0


def test_what_an_earlier_attempt_left_is_packed_again_if_its_bytes_have_changed(
    source: Path, tmp_path: Path
) -> None:
    def stop(done: int, of: int) -> None:
        if done == of:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packing.pack(source, tmp_path / "pack", stop)
    shard = tmp_path / "pack" / "shard-00000"
    shard.write_bytes(bytes(shard.stat().st_size))
    packing.pack(source, tmp_path / "pack", lambda _done, _of: None)
    assert main(["pack", str(source), "-o", str(tmp_path / "pack"), "--check"]) == 0


def measure_peak(act: Callable[[], object]) -> int:
    """Bytes that Python holds at most meanwhile."""
    tracemalloc.start()
    try:
        act()
    finally:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak_bytes


def look_at(folder: Path) -> None:
    with open_pack(folder):
        pass


def write_hollow(target: Path, name_bytes: int, count: int) -> None:
    """An index of version 1, which has no checksum; its names and its hash table are holes."""
    slots, root = 1 << (2 * count - 1).bit_length(), b"/x"
    sizes = count, slots, count * name_bytes, len(root)
    with (target / INDEX).open("wb") as file:
        file.write(HEADER.pack(MAGIC, 1, 0, *sizes) + root)
        file.seek(round_up(file.tell()))
        for number in range(count):
            file.write(ENTRY.pack(number * name_bytes, 0, 0, 0, 0, 0, 0, stat.S_IFDIR, name_bytes))
        file.truncate(file.tell() + slots * SLOT.size + count * name_bytes)


def test_an_index_with_a_root_without_end_takes_no_memory(target: Path) -> None:
    index = bytearray((target / INDEX).read_bytes())
    entries, root_bytes = parts(index)[0], 60 << 20
    index[entries:entries] = bytes(round_up(HEADER.size + root_bytes) - entries)
    change_header(6, root_bytes)(index)
    (target / INDEX).write_bytes(seal(index))

    def look() -> None:
        with pytest.raises(InputError, match="longer than a path can be"):
            look_at(target)

    assert measure_peak(look) < 8 << 20


@pytest.mark.parametrize("name_bytes", [65535, 4000])
def test_an_index_of_long_names_takes_little_memory(
    target: Path, name_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_HOLES", 1 << 40)
    write_hollow(target, name_bytes, 20_000)

    def look() -> None:
        with pytest.raises(InputError, match="not a whole pack"):
            look_at(target)

    assert measure_peak(look) < 64 << 20


def test_an_index_that_is_mostly_holes_is_refused(target: Path) -> None:
    write_hollow(target, 4000, 20_000)
    with pytest.raises(InputError, match="mostly holes"):
        look_at(target)


def test_long_names_are_read_in_several_blocks(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "NAMES_BYTES", 8)
    with open_pack(target) as pack:
        blocks = list(pack.blocks())
        assert len(blocks) > 2
        assert b"".join(names for _, names in blocks) == b"".join(n for n, _ in pack.rows(0))
        assert sum(len(block.mode) for block, _ in blocks) == pack.count


def make_sparse(target: Path, size_bytes: int, version: int, crc: int | None) -> None:
    """The large file becomes one of holes, with its checksum or another."""
    index = bytearray((target / INDEX).read_bytes())
    change_header(1, version)(index)
    at = parts(index)[0]
    while ENTRY.unpack_from(index, at)[2] != len(FILES["large"]):
        at += ENTRY.size
    row = list(ENTRY.unpack_from(index, at))
    row[2], row[4] = size_bytes, row[4] if crc is None else crc
    ENTRY.pack_into(index, at, *row)
    (target / INDEX).write_bytes(seal(index))
    os.truncate(target / "shard-00001", 0)
    os.truncate(target / "shard-00001", size_bytes)


@pytest.mark.parametrize("version", [1, 2])
def test_a_sparse_shard_does_not_stall_the_start(
    target: Path, version: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make_sparse(target, 1 << 40, version, None)
    began_s = time.monotonic()
    words = ["run", "--run-dir", str(tmp_path / "run"), "--packed", str(target), "true"]
    assert main(words) == 3
    assert time.monotonic() - began_s < 20
    assert "is not a whole pack" in capsys.readouterr().err


def test_an_honest_file_of_zeros_is_served_where_its_shard_has_holes(
    target: Path, source: Path
) -> None:
    size_bytes = (200 << 20) + 5
    crc = 0
    for _ in range(200):
        crc = zlib.crc32(bytes(1 << 20), crc)
    make_sparse(target, size_bytes, 2, zlib.crc32(bytes(5), crc))
    descriptor = PackServer(str(target)).open(str(source / "large"))
    assert descriptor is not None
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 0
    os.close(descriptor)


@pytest.mark.parametrize("pieces", [1, 2, 5, 8])
def test_zeros_are_summed_without_reading_them(pieces: int) -> None:
    crc = zlib.crc32(b"before")
    assert extend_by_zeros(crc, pieces) == zlib.crc32(bytes(pieces * PIECE_BYTES), crc)
