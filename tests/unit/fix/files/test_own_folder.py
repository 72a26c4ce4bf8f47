"""Folders that hold anything but ours are refused, and nothing in them is touched."""

import os
from pathlib import Path

import pytest

from fuelline.cli import main

FOREIGN = {
    "drafts/999999-0": b"a draft of mine",
    "drafts/notes.txt": b"notes",
    "objects/ab/thesis.tex": b"years of work",
    "objects/photo.jpg": b"photo",
    "journal": b"dear diary",
    "shard-00000": b"of a database",
    "shard-00000.bak": b"of a database",
    ".index": b"mine",
    ".write": b"mine",
    "ledger": b"accounts",
    "boot": b"yesterday",
}


def fill(folder: Path) -> None:
    for name, content in FOREIGN.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def see(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def cache_into(folder: Path, tmp_path: Path, *more: str) -> int:
    words = ["run", "--quiet", "--run-dir", str(tmp_path / "run"), "--cache", str(folder), *more]
    return main([*words, "true"])


def pack_into(folder: Path, tmp_path: Path) -> int:
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "file").write_bytes(b"content")
    return main(["pack", str(source), "-o", str(folder)])


@pytest.mark.parametrize("write", [cache_into, pack_into])
def test_a_folder_with_foreign_files_is_refused_and_left_as_it_is(
    write: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "mine")
    before = see(tmp_path / "mine")
    assert write(tmp_path / "mine", tmp_path) == 4  # type: ignore[operator]
    assert see(tmp_path / "mine") == before
    assert "not ours to touch, such as" in capsys.readouterr().err


def test_foreign_files_that_came_later_into_a_cache_stay(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert cache_into(cache, tmp_path) == 0
    fill(cache)
    (cache / "objects" / "ab" / f"{'0' * 32}-5-1-1").symlink_to(tmp_path / "victim")
    (tmp_path / "victim").write_bytes(b"mine")
    before = see(cache / "objects")
    (cache / "boot").write_text("another boot")  # all copies are deleted after a power cut
    (tmp_path / "run").rename(tmp_path / "first")
    assert cache_into(cache, tmp_path) == 0
    assert see(cache / "objects") == before
    assert (cache / "drafts" / "notes.txt").exists()
    assert (tmp_path / "victim").read_bytes() == b"mine"


def test_foreign_files_that_came_into_a_pack_that_was_cut_short_stay(tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    assert pack_into(pack, tmp_path) == 0
    (pack / "index").unlink()
    (tmp_path / "victim").write_bytes(b"mine")
    (pack / "shard-00007").symlink_to(tmp_path / "victim")
    (pack / "shard-00001.bak").write_bytes(b"mine")
    (pack / ".write").write_bytes(b"mine")
    assert pack_into(pack, tmp_path) == 0
    assert (pack / "shard-00007").is_symlink()
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert (pack / "shard-00001.bak").read_bytes() == (pack / ".write").read_bytes() == b"mine"
    assert not (pack / "journal").exists()


def test_an_empty_folder_is_taken_also_the_root_of_a_disk(tmp_path: Path) -> None:
    (tmp_path / "disk" / "lost+found").mkdir(parents=True)
    (tmp_path / "disk").chmod(0o755)
    assert cache_into(tmp_path / "disk", tmp_path) == 0
    (tmp_path / "empty").mkdir(mode=0o755)
    assert pack_into(tmp_path / "empty", tmp_path) == 0


def test_a_folder_that_we_make_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert pack_into(tmp_path / "deep" / "pack", tmp_path) == 0
    assert cache_into(tmp_path / "deep" / "cache", tmp_path) == 0
    for name in ("pack", "cache", "cache/objects", "cache/drafts"):
        assert (tmp_path / "deep" / name).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("write", [cache_into, pack_into])
def test_a_folder_that_others_can_write_is_refused(
    write: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert write(folder, tmp_path) == 4  # type: ignore[operator]
    assert "other users can write to it" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("write", [cache_into, pack_into])
def test_a_folder_of_another_user_is_refused(
    write: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    os.chown(folder, 65534, 65534)
    assert write(folder, tmp_path) == 4  # type: ignore[operator]
    assert "it belongs to user 65534" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_a_cache_below_a_folder_where_anybody_can_rename_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    assert cache_into(above / "cache", tmp_path) == 4
    assert "anybody can rename what is in" in capsys.readouterr().err
    above.chmod(0o1777)
    assert cache_into(above / "cache", tmp_path) == 0


def test_names_in_messages_of_pack_cannot_act_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "\x1b]0;owned\x07").symlink_to("nowhere")
    (source / "\x1b[2Jwiped").write_bytes(b"1")
    (source / "caf\udce9").write_bytes(b"1")
    assert pack_into(tmp_path / "pa\x1bck", tmp_path) == 0
    (source / "\x1b[2Jwiped").write_bytes(b"22")
    (source / "caf\udce9").write_bytes(b"22")
    assert main(["pack", str(source), "-o", str(tmp_path / "pa\x1bck"), "--check"]) == 1
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "\\x1b[2Jwiped: other bytes" in told
