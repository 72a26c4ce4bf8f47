"""What others put into a shared cache, or do to it, never reaches the job."""

import os
import stat
import time
from pathlib import Path

import pytest

from fuelline.cli import main
from fuelline.fix.files import local_cache, shared_cache
from fuelline.fix.files.caching import open_shared_cache
from fuelline.fix.files.shared_cache import SharedCache
from fuelline.schema.errors import RefusedError
from tests.unit.fix.files.trees import look, plant

BUDGET = 64 << 20


@pytest.fixture(autouse=True)
def old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a test were all changed just now."""
    monkeypatch.setattr(local_cache, "RACY_S", -1.0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "mount"
    folder.mkdir()
    (folder / "a").write_bytes(b"content")
    (folder / "b").write_bytes(b"CONTENT")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    return shared


def key_file(folder: Path) -> Path:
    return folder.parent / "home" / "cache.key"


def open_it(
    folder: Path, source: Path, budget: int = BUDGET, key: Path | None = None
) -> SharedCache:
    key = key or key_file(folder)
    open_shared_cache(folder, budget, key)
    return SharedCache(str(folder), budget, [str(source)], time.time_ns(), key_file=str(key))


def read(cache: SharedCache, path: Path) -> bytes | None:
    descriptor = cache.open(str(path))
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def copies(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "objects").rglob("*") if not path.is_dir())


def forbid_source(cache: SharedCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, content can come from the cache only."""
    monkeypatch.setattr(cache, "_read_source", lambda *_: pytest.fail("the source was read"))


def test_a_file_is_copied_once_and_then_read_from_the_copy(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_it(folder, source)
    assert read(cache, source / "a") == b"content"
    again = open_it(folder, source)
    forbid_source(again, monkeypatch)
    assert read(again, source / "a") == again.read(str(source / "a")) == b"content"
    assert len(copies(folder)) == 1


@pytest.mark.parametrize("poison", [b"poison!", b"short", b"", b"content and more"])
def test_a_copy_that_was_changed_is_not_given_to_the_job(
    source: Path, folder: Path, poison: bytes
) -> None:
    cache = open_it(folder, source)
    read(cache, source / "a")
    copies(folder)[0].write_bytes(poison)
    assert read(cache, source / "a") == b"content"


def test_a_copy_under_the_name_of_another_is_not_given_to_the_job(
    source: Path, folder: Path
) -> None:
    cache = open_it(folder, source)
    for name in ("a", "b"):
        read(cache, source / name)
    one, other = copies(folder)
    one.write_bytes(other.read_bytes())
    assert (read(cache, source / "a"), read(cache, source / "b")) == (b"content", b"CONTENT")


def test_marks_of_another_key_count_for_nothing(source: Path, folder: Path) -> None:
    evil = open_it(folder, source, key=folder.parent / "evil" / "cache.key")
    (source / "a").rename(source / "true")
    (source / "a").write_bytes(b"poison!")
    status = (source / "true").stat()
    name = Path(evil._name(str(source / "a"), status)).name
    (folder / "objects" / name[:2]).mkdir(parents=True)
    (folder / "objects" / name[:2] / name).write_bytes(b"poison!")
    evil._vouch(name, b"poison!")
    (source / "a").unlink()
    (source / "true").rename(source / "a")
    cache = open_it(folder, source)
    assert read(cache, source / "a") == b"content"


def test_a_copy_of_somebody_else_is_compared_with_the_source_once(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_it(folder, source, key=folder.parent / "other" / "cache.key").open(str(source / "a"))
    (copy,) = copies(folder)
    before = copy.stat().st_ino
    cache = open_it(folder, source)
    assert read(cache, source / "a") == b"content"
    assert copies(folder)[0].stat().st_ino == before
    forbid_source(cache, monkeypatch)
    assert read(cache, source / "a") == b"content"


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_planted_in_the_place_of_a_copy_is_neither_read_nor_written_through(
    source: Path, folder: Path, kind: str
) -> None:
    victim = folder.parent / "victim"
    victim.write_bytes(b"VICTIM!")
    cache = open_it(folder, source)
    read(cache, source / "a")
    (copy,) = copies(folder)
    copy.unlink()
    if kind == "link":
        copy.symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(copy)
    else:
        copy.mkdir()
    assert read(cache, source / "a") in (b"content", None)
    assert read(cache, source / "a") in (b"content", None)
    assert victim.read_bytes() == b"VICTIM!"


@pytest.mark.parametrize("name", ["objects", "objects/shelf"])
def test_links_in_the_place_of_folders_are_not_followed(
    source: Path, folder: Path, name: str
) -> None:
    cache = open_it(folder, source)
    shelf = Path(cache._name(str(source / "a"), (source / "a").stat())).parent
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    if name == "objects":
        (folder / "objects").rmdir()
        (folder / "objects").symlink_to(elsewhere)
    else:
        shelf.symlink_to(elsewhere)
    assert read(cache, source / "a") == b"content"
    assert list(elsewhere.iterdir()) == []


def test_files_that_not_everybody_may_read_stay_private(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = shared_cache._above  # of pytest's own folders nobody else may enter any
    monkeypatch.setattr(
        shared_cache, "_above", lambda low: [each for each in above(low) if str(source) in each]
    )
    source.chmod(0o755)
    (source / "a").chmod(0o600)
    (source / "b").chmod(0o644)
    (source / "closed").mkdir(mode=0o700)
    (source / "closed" / "c").write_bytes(b"secret")
    (source / "closed" / "c").chmod(0o644)
    (source / "link").symlink_to("closed/c")
    cache = open_it(folder, source)
    modes = {}
    for name in ("a", "b", "closed/c", "link"):
        read(cache, source / name)
        found = cache._name(str(source / name), (source / name).stat())
        modes[name] = stat.S_IMODE(Path(found).stat().st_mode)
    assert modes == {"a": 0o600, "b": 0o644, "closed/c": 0o600, "link": 0o600}
    assert stat.S_IMODE((folder / str(os.geteuid())).stat().st_mode) == 0o700
    assert stat.S_IMODE(key_file(folder).stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_copies_of_others_are_not_deleted_to_make_room(source: Path, folder: Path) -> None:
    for number in range(4):
        (source / str(number)).write_bytes(bytes([number]) * (1 << 20))
    cache = open_it(folder, source)
    for number in range(4):
        read(cache, source / str(number))
    theirs = copies(folder)[0]
    os.chown(theirs, 65534, 65534)
    open_it(folder, source, budget=1 << 20)
    assert theirs in copies(folder)
    assert len(copies(folder)) == 2


def test_marks_go_with_their_copies(source: Path, folder: Path) -> None:
    read(open_it(folder, source), source / "a")
    copies(folder)[0].unlink()
    open_it(folder, source)
    marks = (folder / str(os.geteuid()) / "marks").rglob("*")
    assert [path for path in marks if path.is_file()] == []


def test_a_folder_that_users_could_rename_each_others_files_in_is_refused(
    source: Path, folder: Path
) -> None:
    folder.chmod(0o777)
    with pytest.raises(RefusedError, match="rename each other's files"):
        open_it(folder, source)
    with pytest.raises(RefusedError, match="mkdir -m 1777"):
        open_it(folder / "new", source)
    (folder.parent / "foreign").mkdir()
    (folder.parent / "foreign" / "objects").write_bytes(b"mine")
    with pytest.raises(RefusedError, match="not ours to touch, such as objects"):
        open_it(folder.parent / "foreign", source)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_ours_that_another_user_planted_is_refused(source: Path, folder: Path) -> None:
    planted = folder / str(os.geteuid())
    open_it(folder, source)
    os.chown(planted, 65534, 65534)
    with pytest.raises(RefusedError, match="belongs to user 65534"):
        open_it(folder, source)


def test_a_key_that_others_can_read_is_refused(source: Path, folder: Path) -> None:
    open_it(folder, source)
    key_file(folder).chmod(0o644)
    with pytest.raises(RefusedError, match="is not yours alone"):
        open_it(folder, source)


@pytest.mark.integration
def test_a_job_sees_the_same_through_the_cache_twice(tmp_path: Path, folder: Path) -> None:
    root = tmp_path / "mount" / "tree"
    plant(root)
    before = look(root, None)
    open_shared_cache(folder, BUDGET, key_file(folder))
    cache = {"folder": str(folder), "budget_bytes": BUDGET, "roots": [str(root)]}
    plan = {"packed": [], "cache": {**cache, "key_file": str(key_file(folder))}}
    time.sleep(2.1)  # see RACY_S
    assert look(root, plan) == before
    assert len(copies(folder)) >= 6
    assert look(root, plan) == before


def test_sharing_needs_a_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cache-shared", "true"]) == 2
    assert "--cache-shared says how to cache" in capsys.readouterr().err


@pytest.mark.parametrize("problem", [OSError(24, "too many"), MemoryError()])
@pytest.mark.parametrize("where", ["hold_in_memory", "_read_all"])
def test_what_the_cache_has_no_memory_for_is_left_to_the_source(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, problem: Exception
) -> None:
    cache = open_it(folder, source)

    def refuse(*_: object) -> int:
        raise problem

    monkeypatch.setattr(shared_cache, where, refuse)
    assert cache.open(str(source / "a")) is None


def test_the_folders_of_the_key_are_made_for_their_owner_alone(
    folder: Path, tmp_path: Path
) -> None:
    open_shared_cache(folder, BUDGET, tmp_path / "data" / "fuelline" / "cache.key")
    for name in ("data", "data/fuelline"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
