"""A changed script comes back to the byte, or not at all."""

import os
from pathlib import Path

import pytest

from fuelline.fix.tune.undoing import apply_change, undo_last
from fuelline.schema.errors import InputError, RefusedError

BEFORE, AFTER = b"x = 1\r\n\xff", b"x = 2\r\n\xff"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(BEFORE)
    path.chmod(0o755)
    return path


def test_apply_and_undo_restore_bytes_and_permissions(script: Path, tmp_path: Path) -> None:
    apply_change(script, BEFORE, AFTER, tmp_path / "undo", 1)
    assert script.read_bytes() == AFTER
    assert script.stat().st_mode & 0o777 == 0o755
    change = undo_last(tmp_path / "undo")
    assert change.script == str(script)
    assert script.read_bytes() == BEFORE
    assert script.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in tmp_path.iterdir()] in (
        ["train.py", "undo"],
        ["undo", "train.py"],
    )


def test_changes_are_undone_one_by_one_the_last_first(script: Path, tmp_path: Path) -> None:
    apply_change(script, BEFORE, AFTER, tmp_path / "undo", 1)
    apply_change(script, AFTER, b"x = 3", tmp_path / "undo", 2)
    undo_last(tmp_path / "undo", script)
    assert script.read_bytes() == AFTER
    undo_last(tmp_path / "undo", script)
    assert script.read_bytes() == BEFORE
    with pytest.raises(InputError, match="No change"):
        undo_last(tmp_path / "undo", script)


def test_a_script_that_was_edited_since_is_not_overwritten(script: Path, tmp_path: Path) -> None:
    apply_change(script, BEFORE, AFTER, tmp_path / "undo", 1)
    script.write_bytes(b"my own work")
    with pytest.raises(InputError, match="changed after"):
        undo_last(tmp_path / "undo")
    assert script.read_bytes() == b"my own work"
    script.write_bytes(AFTER)
    undo_last(tmp_path / "undo")
    assert script.read_bytes() == BEFORE


def test_a_script_that_changed_while_it_was_tuned_is_not_touched(
    script: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="while it was tuned"):
        apply_change(script, b"something else", AFTER, tmp_path / "undo", 1)
    assert script.read_bytes() == BEFORE
    assert not (tmp_path / "undo").exists()


def test_code_that_others_may_have_left_is_not_installed(script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "undo"
    kept = apply_change(script, BEFORE, AFTER, folder, 1)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    with pytest.raises(RefusedError, match="anybody's code"):
        undo_last(folder)
    folder.chmod(0o700)
    kept.chmod(0o666)
    with pytest.raises(InputError, match="No change"):
        undo_last(folder)
    kept.chmod(0o600)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(RefusedError, match="a link"):
        undo_last(tmp_path / "link")
    assert script.read_bytes() == AFTER
    undo_last(folder)
    assert script.read_bytes() == BEFORE


def test_what_is_no_change_of_ours_is_passed_over(script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "undo"
    apply_change(script, BEFORE, AFTER, folder, 1)
    (folder / "2.json").write_bytes(b"[" * 100_000)
    (folder / "3.json").write_bytes(b'{"script":"\xff"}')
    (folder / "4.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "5.json")
    (folder / "99999999999999999999999.json").write_bytes(b"{}")
    assert undo_last(folder).script == str(script)
    assert script.read_bytes() == BEFORE


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_script_of_another_user_is_not_replaced(script: Path, tmp_path: Path) -> None:
    apply_change(script, BEFORE, AFTER, tmp_path / "undo", 1)
    os.chown(script, 65534, 65534)
    with pytest.raises(RefusedError, match="another user"):
        undo_last(tmp_path / "undo")
    assert script.read_bytes() == AFTER
