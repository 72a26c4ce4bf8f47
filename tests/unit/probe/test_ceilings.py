"""A probe measures within its bounds, leaves nothing behind, and refuses what it must not do."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuelline.probe import ProbeFolder, prepare_place, probe_storage
from fuelline.probe.pace import time_rate_of_cores
from fuelline.probe.place import PREFIX
from fuelline.probe.storage import why_still_warm
from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.readings import Missing, Reading

SMALL = 16 << 20


def quiet(_: str) -> None:
    pass


def test_storage_is_measured_within_its_size_and_deleted(tmp_path: Path) -> None:
    largest = 0

    def watch(_: str) -> None:
        nonlocal largest
        used = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
        largest = max(largest, used)

    with prepare_place(tmp_path, SMALL, 0.1) as place:
        ceilings = probe_storage(place, watch)
    assert 0 < largest <= 1.25 * SMALL
    assert list(tmp_path.iterdir()) == []
    names = [each.name for each in ceilings]
    assert len(names) == len(set(names)) == 10
    for each in ceilings:
        if isinstance(each.signal, Reading):
            each.signal.check()
            assert each.signal.value > 0


def test_files_that_stay_in_memory_are_not_called_cold() -> None:
    if not Path("/dev/shm").is_dir():
        pytest.skip("no tmpfs")
    with prepare_place(Path("/dev/shm"), SMALL, 0.1) as place:
        with place.open("0.small", "xb") as file:
            file.write(bytes(8192))
        assert why_still_warm(place, "0.small") is not None
        os.unlink("0.small", dir_fd=place.descriptor)
        cold = [each for each in probe_storage(place, quiet) if "cold" in each.name]
    assert all(isinstance(each.signal, Missing) for each in cold)


def test_the_folder_is_gone_after_ctrl_c(tmp_path: Path) -> None:
    def interrupt() -> None:
        with prepare_place(tmp_path, SMALL, 1.0) as place:
            place.open("large", "xb").close()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert list(tmp_path.iterdir()) == []


def test_foreign_files_stay_whatever_they_are_called(tmp_path: Path) -> None:
    """The pid of no process, our own pattern, our lock of another host; a link to any of them."""
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "large").write_bytes(b"mine")
    for name in ("4194305", "0" * 16, "1" * 16):
        (tmp_path / f"{PREFIX}{name}").mkdir()
        (tmp_path / f"{PREFIX}{name}" / "large").write_bytes(b"mine")
    (tmp_path / f"{PREFIX}{'1' * 16}" / "probe.lock").write_bytes(b"fuelline probe on elsewhere\n")
    (tmp_path / f"{PREFIX}{'2' * 16}").symlink_to(thesis)
    (tmp_path / f"{PREFIX}{'3' * 16}").mkdir()
    os.mkfifo(tmp_path / f"{PREFIX}{'3' * 16}" / "probe.lock")
    before = sorted(tmp_path.rglob("*"))
    with prepare_place(tmp_path, SMALL, 0.1) as place:
        probe_storage(place, quiet)
    assert sorted(tmp_path.rglob("*")) == before
    assert [path.read_bytes() for path in tmp_path.rglob("large")] == [b"mine"] * 4


def test_the_folder_is_private_and_its_name_cannot_be_guessed(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with prepare_place(tmp_path, SMALL, 0.1) as place:
            place.open("large", "xb").close()
            (folder,) = tmp_path.iterdir()
            assert folder.stat().st_mode & 0o777 == 0o700
            assert (folder / "large").stat().st_mode & 0o777 == 0o600
            seen.add(folder.name)
    assert len(seen) == 2


def test_a_folder_that_takes_the_place_of_ours_is_neither_written_nor_deleted(
    tmp_path: Path,
) -> None:
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "large").write_bytes(b"mine")
    with prepare_place(tmp_path, SMALL, 0.1) as place:
        (folder,) = (each for each in tmp_path.iterdir() if each != thesis)
        folder.rename(tmp_path / "aside")
        thesis.rename(folder)
        probe_storage(place, quiet)
    assert [each.read_bytes() for each in folder.iterdir()] == [b"mine"]
    assert list((tmp_path / "aside").iterdir()) == []


def test_what_others_put_into_the_folder_is_not_deleted(tmp_path: Path) -> None:
    with prepare_place(tmp_path, SMALL, 0.1) as place:
        probe_storage(place, quiet)
        (folder,) = tmp_path.iterdir()
        (folder / "notes").write_text("mine")
    assert [each.name for each in folder.iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("flag", "free", "words"),
    [(os.ST_RDONLY, 10**6, "is read-only"), (0, 100, "would leave less than")],
)
def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: int, free: int, words: str
) -> None:
    status = SimpleNamespace(f_flag=flag, f_bavail=free, f_frsize=4096, f_blocks=10**6)
    monkeypatch.setattr(os, "statvfs", lambda _: status)
    with pytest.raises(RefusedError, match=words), prepare_place(tmp_path, SMALL, 0.1):
        pytest.fail("it went on")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_folder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError), prepare_place(tmp_path / "none", SMALL, 0.1):
        pytest.fail("it went on")


def test_a_disk_that_fills_up_meanwhile_is_told_and_cleaned(tmp_path: Path) -> None:
    def fill(place: ProbeFolder) -> None:
        place.open("large", "xb").close()
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(RefusedError, match="No space left"),
        prepare_place(tmp_path, SMALL, 0.1) as place,
    ):
        fill(place)
    assert list(tmp_path.iterdir()) == []


def test_memory_is_measured_in_seconds_of_a_core() -> None:
    def act() -> float:
        time.sleep(0.01)  # no core: as if another process had it
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        return 1.0

    found = time_rate_of_cores([act, act], 0.3, "count/s", "test")
    assert isinstance(found, Reading)
    assert 500 < found.value <= 1000
    found.check()
