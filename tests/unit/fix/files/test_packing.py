"""A pack gives back every byte, goes on where it stopped, and notices a source that moves."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuelline.cli import main
from fuelline.fix.files import packing
from fuelline.fix.files.checking import check_pack, spot_check
from fuelline.fix.files.shards import Pack
from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.shards import INDEX, JOURNAL
from tests.unit.fix.files.trees import look, plant


def quiet(_done: int, _of: int) -> None:
    pass


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    plant(root)
    return root


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    folder.mkdir()
    return folder


def content(pack: Pack, name: str) -> bytes:
    entry = pack.find(name)
    assert entry is not None, name
    with os.fdopen(pack.open(entry), "rb") as file:
        return file.read()


def test_every_byte_comes_back(tmp_path: Path, target: Path) -> None:
    files = plant(tmp_path / "source")
    outcome = packing.pack(tmp_path / "source", target, quiet)
    pack = Pack(str(target))
    assert {name: content(pack, name) for name in files} == files
    assert outcome.files == len(files)
    assert outcome.skipped == ["loop"]
    assert not (target / JOURNAL).exists()
    assert check_pack(tmp_path / "source", target, quiet) == []


@pytest.mark.integration
def test_a_job_sees_the_same_through_a_pack_when_the_source_is_gone(
    source: Path, target: Path
) -> None:
    before = look(source, None)
    packing.pack(source, target, quiet)
    shutil.move(source, source.with_name("elsewhere"))
    assert look(source, {"packed": [str(target)], "cache": None}) == before


def test_an_attempt_that_was_cut_short_goes_on(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, _of: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packing.pack(source, target, stop)
    assert not (target / INDEX).exists()
    (source / "a" / "1.bin").write_bytes(b"changed since")
    outcome = packing.pack(source, target, quiet)
    assert outcome.resumed > 0
    assert content(Pack(str(target)), "a/1.bin") == b"changed since"
    assert check_pack(source, target, quiet) == []


def test_a_torn_journal_is_trusted_up_to_the_tear(source: Path, target: Path) -> None:
    def stop(done: int, _of: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packing.pack(source, target, stop)
    journal = target / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-7])
    packing.pack(source, target, quiet)
    assert check_pack(source, target, quiet) == []


def test_a_file_that_changes_while_it_is_read_is_read_again(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, times = packing._copy_bytes, []

    def copy_and_change(file: Any, output: Any) -> Any:
        done = copy(file, output)
        if file.name.endswith("zeta") and len(times) < 2:
            times.append(1)
            (source / "zeta").write_bytes(b"longer than before" * len(times))
        return done

    monkeypatch.setattr(packing, "_copy_bytes", copy_and_change)
    packing.pack(source, target, quiet)
    assert content(Pack(str(target)), "zeta") == b"longer than before" * 2


def test_a_file_that_never_rests_is_an_error_and_there_is_no_pack(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = packing._copy_bytes

    def copy_and_change(file: Any, output: Any) -> Any:
        done = copy(file, output)
        with (source / "zeta").open("ab") as other:
            other.write(b"more")
        return done

    monkeypatch.setattr(packing, "_copy_bytes", copy_and_change)
    with pytest.raises(InputError, match="zeta changed each of 3 times"):
        packing.pack(source, target, quiet)
    assert not (target / INDEX).exists()


def test_what_is_added_meanwhile_is_noticed(source: Path, target: Path) -> None:
    def add(done: int, of: int) -> None:
        if done == of:
            (source / "new").write_bytes(b"")

    with pytest.raises(InputError, match="changed while it was packed: 1 files, such as new"):
        packing.pack(source, target, add)
    assert packing.pack(source, target, quiet).resumed > 0


def test_a_disk_that_gives_back_other_bytes_makes_no_pack(source: Path, target: Path) -> None:
    def spoil(done: int, of: int) -> None:
        shard = target / "shard-00000"
        if done == 1 and shard.exists() and shard.stat().st_size:
            shard.write_bytes(bytes(shard.stat().st_size))

    with pytest.raises(RefusedError, match="does not give back"):
        packing.pack(source, target, spoil)
    assert not (target / INDEX).exists()


def test_the_check_names_what_differs(
    source: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packing.pack(source, target, quiet)
    status = (source / "zeta").stat()
    (source / "zeta").write_bytes(b"tsal")
    os.utime(source / "zeta", ns=(status.st_atime_ns, status.st_mtime_ns))
    (source / "a" / "empty").unlink()
    assert main(["pack", str(source), "-o", str(target), "--check"]) == 1
    told = capsys.readouterr().out
    assert "zeta: other bytes" in told
    assert "a/empty: No such file" in told


def test_a_changed_source_is_noticed_before_a_job_starts(source: Path, target: Path) -> None:
    packing.pack(source, target, quiet)
    assert spot_check(target).differs == []
    (source / "zeta").write_bytes(b"longer")
    assert spot_check(target).differs == ["zeta"]


def test_one_changed_file_among_many_is_noticed(tmp_path: Path, target: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(700):
        (many / f"{number:03d}").write_bytes(b"x")
    packing.pack(many, target, quiet)
    (many / "377").write_bytes(b"changed")
    spot = spot_check(target)
    assert spot.differs == ["377"]
    assert spot.looked == spot.of


def test_a_slow_source_is_looked_at_in_part_and_that_is_known(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuelline.fix.files.checking._BLOCK", 1)
    packing.pack(source, target, quiet)
    spot = spot_check(target, seconds=0.0)
    assert 0 < spot.looked < spot.of


def test_the_source_is_never_written_to(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", str(source), "-o", str(source / "pack")]) == 2
    assert "which is never written to" in capsys.readouterr().err
    assert not (source / "pack").exists()


@pytest.mark.parametrize("words", [["missing", "-o", "t"], ["hollow", "-o", "t"]])
def test_what_cannot_be_packed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hollow").mkdir()
    assert main(["pack", *words]) == 3


def test_a_folder_that_is_no_whole_pack_starts_no_job(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.py"
    job.write_text("raise SystemExit('started')")
    assert main(["run", "--packed", str(target), str(job)]) == 3
    assert "is not a whole pack" in capsys.readouterr().err


PROCESSES = r"""
import multiprocessing, os, sys, threading
root = sys.argv[1]
def read(path):
    with open(path, "rb") as file:
        return len(file.read())
def work(_):
    return sorted((name, read(os.path.join(root, name))) for name in ("zeta", "large.bin"))
if __name__ == "__main__":
    expected = work(0)
    found = []
    threads = [threading.Thread(target=lambda: found.append(work(0))) for _ in range(8)]
    [thread.start() for thread in threads]; [thread.join() for thread in threads]
    for way in ("fork", "spawn"):
        with multiprocessing.get_context(way).Pool(2) as pool:
            found += pool.map(work, range(4))
    assert found == [expected] * 16, found
    try:
        open(os.path.join(root, "new"), "w")
    except FileNotFoundError as error:
        print(error.filename == os.path.join(root, "new"))
"""


@pytest.mark.integration
def test_forked_and_spawned_processes_and_threads_read_it(
    tmp_path: Path, source: Path, target: Path
) -> None:
    packing.pack(source, target, quiet)
    shutil.move(source, source.with_name("elsewhere"))
    job = tmp_path / "processes.py"
    job.write_text(PROCESSES)
    command = [sys.executable, "-m", "fuelline", "run", "--quiet", "--run-dir", str(tmp_path / "r")]
    done = subprocess.run(
        [*command, "--packed", str(target), str(job), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_overhead_is_small_and_modes_and_times_are_kept(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(300):
        (source / f"{number:05d}.bin").write_bytes(os.urandom(8192))
    (source / "00007.bin").chmod(0o640)
    outcome = packing.pack(source, target, quiet)
    assert outcome.pack_bytes <= 1.02 * outcome.content_bytes
    pack = Pack(str(target))
    entry = pack.find("00007.bin")
    assert entry is not None
    assert stat.S_IMODE(pack.status(entry).st_mode) == 0o640
    assert pack.status(entry).st_mtime_ns == (source / "00007.bin").stat().st_mtime_ns
    assert [child.name for child in pack.list("")] == sorted(path.name for path in source.iterdir())


def test_two_attempts_at_once_do_not_mix(source: Path, target: Path) -> None:
    def again(done: int, _of: int) -> None:
        if done == 2:
            packing.pack(source, target, quiet)

    with pytest.raises(RefusedError, match="Another process is packing"):
        packing.pack(source, target, again)


def test_the_journal_is_read_as_written(tmp_path: Path) -> None:
    rows = [["caf\udce9", 0, 1, 2, 3, 33188, "00" * 8]]
    (tmp_path / JOURNAL).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "shard-00000").write_bytes(b"abc")
    from fuelline.fix.files.pack_journal import PackJournal

    with PackJournal(tmp_path) as journal:
        assert [entry.name for entry in journal.entries] == ["caf\udce9"]
        assert journal.next_shard == 1
