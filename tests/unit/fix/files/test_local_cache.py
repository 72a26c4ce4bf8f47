"""The cache never gives other bytes than the source has, whatever happens to either."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fuelline.cli import main
from fuelline.fix.files import local_cache
from fuelline.fix.files.caching import open_cache
from fuelline.fix.files.local_cache import LocalCache
from fuelline.schema.errors import RefusedError
from tests.unit.fix.files.trees import look, plant

BUDGET = 64 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "mount"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def write(path: Path, content: bytes, age_s: float = 100) -> None:
    """A file that was last changed a while ago; its change time is always now."""
    path.write_bytes(content)
    then = time.time() - age_s
    os.utime(path, (then, then))


@pytest.fixture(autouse=True)
def old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a test were all changed just now."""
    monkeypatch.setattr(local_cache, "RACY_S", -1.0)


def read(cache: LocalCache, path: Path) -> bytes | None:
    descriptor = cache.open(str(path))
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def copies(folder: Path) -> list[Path]:
    return [path for path in (folder / "objects").rglob("*") if path.is_file()]


def test_a_file_is_copied_once_and_then_read_from_the_copy(source: Path, folder: Path) -> None:
    write(source / "a", b"content")
    with open_cache(folder, BUDGET):
        cache = LocalCache(str(folder), BUDGET, [str(source)])
        assert read(cache, source / "a") == b"content"
        (copy,) = copies(folder)
        inode = copy.stat().st_ino
        descriptor = cache.open(str(source / "a"))
        assert descriptor is not None
        assert os.fstat(descriptor).st_ino == inode
        os.close(descriptor)


def test_a_changed_source_is_never_answered_with_an_old_copy(source: Path, folder: Path) -> None:
    with open_cache(folder, BUDGET):
        cache = LocalCache(str(folder), BUDGET, [str(source)])
        for version in range(5):
            write(source / "a", b"version %d" % version, age_s=100)
            assert read(cache, source / "a") == b"version %d" % version
        status = (source / "a").stat()
        (source / "a").write_bytes(b"version X")  # same size; its times are put back
        os.utime(source / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
        assert read(cache, source / "a") == b"version X"


def test_a_source_that_changes_while_it_is_copied_is_not_kept(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source / "a", b"before")
    copy = local_cache._copy_all

    def copy_and_change(one: int, other: int) -> int:
        copied = copy(one, other)
        write(source / "a", b"after!", age_s=50)
        return copied

    monkeypatch.setattr(local_cache, "_copy_all", copy_and_change)
    with open_cache(folder, BUDGET):
        assert read(LocalCache(str(folder), BUDGET, [str(source)]), source / "a") is None
        assert copies(folder) == list((folder / "drafts").iterdir()) == []
        assert int((folder / "ledger").read_text()) == 0


def test_a_file_that_changed_a_moment_ago_is_left_alone(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cache, "RACY_S", 3600.0)
    write(source / "a", b"content")
    with open_cache(folder, BUDGET):
        assert read(LocalCache(str(folder), BUDGET, [str(source)]), source / "a") is None


def test_a_copy_that_others_can_write_to_is_made_anew(source: Path, folder: Path) -> None:
    write(source / "a", b"content")
    with open_cache(folder, BUDGET):
        cache = LocalCache(str(folder), BUDGET, [str(source)])
        read(cache, source / "a")
        (copy,) = copies(folder)
        copy.write_bytes(b"another")
        copy.chmod(0o660)
        assert read(cache, source / "a") == b"content"


def test_a_copy_that_was_cut_short_is_made_anew(source: Path, folder: Path) -> None:
    write(source / "a", b"content")
    with open_cache(folder, BUDGET):
        cache = LocalCache(str(folder), BUDGET, [str(source)])
        read(cache, source / "a")
        copies(folder)[0].write_bytes(b"cont")
        assert read(cache, source / "a") == b"content"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_copy_that_somebody_else_put_there_is_not_believed(source: Path, folder: Path) -> None:
    write(source / "a", b"content")
    with open_cache(folder, BUDGET):
        cache = LocalCache(str(folder), BUDGET, [str(source)])
        read(cache, source / "a")
        (copy,) = copies(folder)
        copy.write_bytes(b"poison!")
        os.chown(copy, 65534, 65534)
        assert read(cache, source / "a") == b"content"


def test_a_link_in_the_place_of_a_copy_or_of_the_ledger_is_not_followed(
    source: Path, folder: Path, tmp_path: Path
) -> None:
    write(source / "a", b"content")
    (tmp_path / "victim").write_bytes(b"VICTIM!")
    with open_cache(folder, BUDGET):
        cache = LocalCache(str(folder), BUDGET, [str(source)])
        read(cache, source / "a")
        for planted in (copies(folder)[0], folder / "ledger"):
            planted.unlink()
            planted.symlink_to(tmp_path / "victim")
        assert read(cache, source / "a") is None
        write(source / "b", b"content")
        assert read(cache, source / "b") is None
        (folder / "ledger").unlink()
    assert (tmp_path / "victim").read_bytes() == b"VICTIM!"


def test_the_budget_holds_and_what_this_run_uses_stays(source: Path, folder: Path) -> None:
    budget = 10 << 20
    for number in range(16):
        write(source / f"{number}", bytes([number]) * (1 << 20))
    with open_cache(folder, budget):
        cache = LocalCache(str(folder), budget, [str(source)], time.time_ns() - 10**9)
        answers = [read(cache, source / f"{number}") for number in range(16)]
        assert sum(path.stat().st_size for path in copies(folder)) <= budget
        assert [answer is not None for answer in answers] == [True] * 10 + [False] * 6
        assert read(cache, source / "0") == bytes([0]) * (1 << 20)


def test_what_an_earlier_run_left_makes_room(source: Path, folder: Path) -> None:
    budget = 10 << 20
    for number in range(14):
        write(source / f"{number}", bytes([number]) * (1 << 20))
    with open_cache(folder, budget):
        earlier = LocalCache(str(folder), budget, [str(source)], 0)
        for number in range(10):
            assert read(earlier, source / f"{number}") is not None
        later = LocalCache(str(folder), budget, [str(source)], time.time_ns())
        assert read(later, source / "13") == bytes([13]) * (1 << 20)
        assert sum(path.stat().st_size for path in copies(folder)) <= budget


def test_a_smaller_budget_next_time_is_kept_to(source: Path, folder: Path) -> None:
    for number in range(4):
        write(source / f"{number}", bytes([number]) * (1 << 20))
    with open_cache(folder, BUDGET):
        for number in range(4):
            read(LocalCache(str(folder), BUDGET, [str(source)]), source / f"{number}")
    with open_cache(folder, 2 << 20):
        assert len(copies(folder)) == 2
        assert int((folder / "ledger").read_text()) == 2 << 20


@pytest.mark.parametrize("name", ["none", "folder", "empty", "large"])
def test_what_is_not_worth_caching_is_left_to_the_original(
    source: Path, folder: Path, name: str
) -> None:
    (source / "folder").mkdir()
    write(source / "empty", b"")
    write(source / "large", bytes(1 << 20))
    with open_cache(folder, 2 << 20):
        assert read(LocalCache(str(folder), 2 << 20, [str(source)]), source / name) is None


def test_a_disk_that_refuses_costs_the_cache_not_the_job(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    write(source / "a", b"content")
    write(source / "b", b"content")
    monkeypatch.setattr(local_cache, "_copy_all", refuse)
    with open_cache(folder, BUDGET):
        cache = LocalCache(str(folder), BUDGET, [str(source)])
        assert read(cache, source / "a") is None
        monkeypatch.undo()
        monkeypatch.setattr(local_cache, "RACY_S", -1.0)
        assert read(cache, source / "b") is None  # not tried again for a while
        assert list((folder / "drafts").iterdir()) == []


def test_drafts_of_the_dead_are_removed_and_of_the_living_kept(folder: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with open_cache(folder, BUDGET):
        (folder / "drafts" / f"{gone.pid}-0").touch()
        (folder / "drafts" / f"{os.getppid()}-0").touch()
    with open_cache(folder, BUDGET):
        left = [path.name for path in (folder / "drafts").iterdir()]
    assert left == [f"{os.getppid()}-0"]


def test_copies_that_were_not_synced_before_a_power_cut_are_not_trusted(
    source: Path, folder: Path
) -> None:
    write(source / "a", b"content")
    with open_cache(folder, BUDGET):
        read(LocalCache(str(folder), BUDGET, [str(source)]), source / "a")
    with open_cache(folder, BUDGET):
        assert len(copies(folder)) == 1
    (folder / "boot").write_text("another boot")
    with open_cache(folder, BUDGET):
        assert copies(folder) == []


@pytest.mark.integration
def test_a_job_sees_the_same_through_the_cache_twice(tmp_path: Path, folder: Path) -> None:
    root = tmp_path / "mount" / "tree"
    plant(root)
    before = look(root, None)
    plan = {"folder": str(folder), "budget_bytes": BUDGET, "roots": [str(root)]}
    time.sleep(2.1)  # see RACY_S
    with open_cache(folder, BUDGET):
        assert look(root, {"packed": [], "cache": plan}) == before
        assert len(copies(folder)) >= 6
        assert look(root, {"packed": [], "cache": plan}) == before


def test_a_holder_that_was_stopped_does_not_stop_the_job(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cache, "LOCK_TRIES", 2)
    write(source / "a", b"content")
    with open_cache(folder, BUDGET), local_cache.Ledger(str(folder)):
        assert read(LocalCache(str(folder), BUDGET, [str(source)]), source / "a") is None


def test_a_child_forked_under_the_lock_does_not_keep_it(folder: Path) -> None:
    with open_cache(folder, BUDGET):
        with local_cache.Ledger(str(folder)):
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
        try:
            with local_cache.Ledger(str(folder)) as ledger:
                assert ledger.read() == 0
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)


@pytest.mark.parametrize("words", [["--cache-size", "0"], ["--cache-size", "0G"]])
def test_a_budget_of_nothing_starts_nothing(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", "--cache", str(tmp_path / "c"), *words, "true"])
    assert left.value.code == 2
    assert not (tmp_path / "c").exists()


def test_a_cache_that_cannot_be_written_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["run", "--cache", str(tmp_path / "file" / "c"), "true"]) == 4
    assert "cannot be used as a cache" in capsys.readouterr().err


def test_a_full_disk_is_told_before_the_job_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    full = shutil._ntuple_diskusage(100, 100, 0)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(RefusedError, match="its disk is full"), open_cache(folder, BUDGET):
        pytest.fail("it went on")


def test_ranks_that_open_a_file_at_the_same_time_fetch_it_once(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source / "a", b"content")
    fetched: list[int] = []
    everyone = threading.Barrier(4)
    original = local_cache._copy_all

    def copy_slowly(*descriptors: int) -> int:
        fetched.append(1)
        time.sleep(0.2)
        return original(*descriptors)

    def take(cache: LocalCache) -> None:
        everyone.wait()
        taken.append(read(cache, source / "a"))

    taken: list[bytes | None] = []
    monkeypatch.setattr(local_cache, "_copy_all", copy_slowly)
    with open_cache(folder, BUDGET):
        caches = [LocalCache(str(folder), BUDGET, [str(source)]) for _ in range(4)]
        threads = [threading.Thread(target=take, args=(cache,)) for cache in caches]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert taken == [b"content"] * 4
    assert len(fetched) == 1


def test_a_file_whose_fetcher_was_stopped_is_read_from_its_source(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(source / "a", b"content")
    monkeypatch.setattr(local_cache, "LONGEST_TURN_S", 0.05)
    with open_cache(folder, BUDGET):
        cache = LocalCache(str(folder), BUDGET, [str(source)])
        name = cache._name(str(source / "a"), (source / "a").stat())
        with local_cache._FetchLock(cache._turns, name):
            assert read(cache, source / "a") is None
        assert read(cache, source / "a") == b"content"


def test_a_fetcher_that_was_killed_is_not_waited_for(source: Path, folder: Path) -> None:
    write(source / "a", b"content")
    holder = (
        "import sys, time; from fuelline.fix.files.local_cache import _FetchLock\n"
        "with _FetchLock(*sys.argv[1:]): print('held', flush=True); time.sleep(60)"
    )
    with open_cache(folder, BUDGET):
        cache = LocalCache(str(folder), BUDGET, [str(source)])
        name = cache._name(str(source / "a"), (source / "a").stat())
        words = [sys.executable, "-c", holder, cache._turns, name]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            child.kill()
            child.wait()
        assert read(cache, source / "a") == b"content"
