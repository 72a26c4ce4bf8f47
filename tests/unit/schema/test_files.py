"""Reading below a folder follows no link and ends; writing replaces, and never goes through."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fuelline.schema import files
from fuelline.schema.files import (
    is_own_folder,
    list_below,
    make_draft_folder,
    open_below,
    read_below,
    refuse_holes_in,
    remove_drafts,
    write_all,
    write_whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def _refusal(folder: Path, name: str) -> OSError:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is asked for
        os.close(open_below(folder, name))
    return caught.value


def _count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_regular_file_is_read_also_in_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"content")
    assert read_below(tmp_path, "inner/file", 7) == b"content"
    assert list_below(tmp_path) == ["inner"]
    assert list_below(tmp_path, "inner") == ["file"]


def test_a_link_is_refused_as_file_and_as_folder_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "outside").symlink_to(tmp_path)
    assert _refusal(folder, "link").strerror == "it is a link"
    assert _refusal(folder, "outside/secret").errno in (errno.ELOOP, errno.ENOTDIR)
    assert _refusal(folder, "../secret").strerror == "the name leads out of its folder"


def test_the_path_to_the_folder_may_have_links(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_bytes(b"1")
    (tmp_path / "last").symlink_to("run")
    assert read_below(tmp_path / "last", "file", 1) == b"1"


def test_what_is_no_regular_file_neither_hangs_nor_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert _refusal(tmp_path, "fifo").strerror == "it is not a regular file"
        assert _refusal(tmp_path, "socket").strerror == "it is not a regular file"
    (tmp_path / "folder").mkdir()
    assert _refusal(tmp_path, "folder").strerror == "it is not a regular file"
    assert _refusal(Path("/dev"), "zero").strerror == "it is not a regular file"


def test_no_more_is_read_than_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"12345678")
    with pytest.raises(OSError, match="more than 7 bytes"):
        read_below(tmp_path, "long", 7)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    before = _count_descriptors()
    for name in ("inner/none", "none/none", "inner", "inner/../x"):
        _refusal(tmp_path, name)
    assert _count_descriptors() == before


def test_a_written_file_is_private_and_replaces_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    target = tmp_path / "target"
    target.symlink_to(victim)
    with write_whole(target) as file:
        file.write(b"new")
    assert (victim.read_bytes(), target.read_bytes()) == (b"mine", b"new")
    assert stat.S_IMODE(target.lstat().st_mode) == 0o600


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    with pytest.raises(TypeError), write_whole(target) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert target.read_bytes() == b"old"
    assert list_below(tmp_path) == ["target"]


def test_only_a_folder_that_nobody_else_can_write_is_our_own(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert is_own_folder(tmp_path)
    tmp_path.chmod(0o777)
    assert not is_own_folder(tmp_path)
    tmp_path.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert not is_own_folder(link)
    assert not is_own_folder(tmp_path / "none")


def test_a_new_folder_and_those_above_it_are_for_their_owner_alone(tmp_path: Path) -> None:
    files.make_folder(tmp_path / "a" / "b")
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")} == {0o700}
    files.make_folder(tmp_path / "a" / "b", is_new=False)
    with pytest.raises(FileExistsError):
        files.make_folder(tmp_path / "a" / "b")


def test_a_file_of_our_own_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        files.open_own(tmp_path / "link", os.O_WRONLY)
    assert not (tmp_path / "target").exists()


def test_only_drafts_of_the_process_are_removed(tmp_path: Path) -> None:
    draft = make_draft_folder(tmp_path, "run")
    foreign = [
        ".notes.4711.backup",
        f".notes.{os.getpid()}.backup",
        f"run.{os.getpid()}.0123456789ab",
    ]
    foreign += [f".run.{os.getpid()}.0123456789abc", ".run.1.0123456789ab"]
    for name in foreign:
        (tmp_path / name).mkdir()
    for pid in (4711, os.getpid()):
        remove_drafts(tmp_path, pid)
    assert not Path(draft).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(foreign)


def test_folders_above_a_draft_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    make_draft_folder(tmp_path / "store" / "runs", "run")
    for folder in (tmp_path / "store", tmp_path / "store" / "runs"):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def sparse(tmp_path: Path) -> Iterator[int]:
    """A file with two bytes far apart, and more holes than anybody writes."""
    with (tmp_path / "sparse").open("w+b") as file:
        file.write(b"1")
        file.seek(files.MOST_HOLES)
        file.write(b"2")
        file.truncate(3 * files.MOST_HOLES)
        yield file.fileno()


def test_a_file_of_holes_is_refused_however_few_of_its_pieces_are_counted(
    sparse: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in (100, 1):
        monkeypatch.setattr(files, "_MOST_PIECES", most)
        with pytest.raises(OSError, match="mostly holes"):
            refuse_holes_in(sparse, "sparse")


def test_where_the_file_system_cannot_tell_its_holes_a_file_is_taken_as_written(
    sparse: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seek = os.lseek

    def refuse(descriptor: int, at: int, how: int) -> int:
        if how == os.SEEK_DATA:
            raise OSError(errno.EINVAL, "Invalid argument")
        return seek(descriptor, at, how)

    monkeypatch.setattr(os, "lseek", refuse)
    refuse_holes_in(sparse, "sparse")


def test_what_a_limit_on_files_does_not_allow_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3, resource.RLIM_INFINITY))
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match="ulimit -f"):
        write_all(file.fileno(), b"1234")
    assert (tmp_path / "file").read_bytes() == b""


def test_drafts_in_a_folder_that_is_gone_are_gone(tmp_path: Path) -> None:
    remove_drafts(tmp_path / "none", os.getpid())
