"""Writes a patched script and keeps what was there, so that `fuelline undo` restores it exactly.

The original is kept before the script is touched; the script is replaced in one step, with its
permissions. Undoing refuses when the script was changed since: then it is not ours to overwrite.
What is undone becomes code that runs, so only our own files in a folder of ours are believed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

import msgspec

from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.files import (
    is_own,
    is_own_file,
    is_own_folder,
    list_below,
    make_folder,
    open_below,
    read_below,
)
from fuelline.schema.foreign import decode_json


class PatchedScript(msgspec.Struct, frozen=True, kw_only=True):
    """One script that was changed."""

    script: str
    original: bytes
    changed_sha256: str
    made_ns: int


def apply_change(script: Path, before: bytes, after: bytes, folder: Path, made_ns: int) -> Path:
    """Write `after` over a script that still is `before`; gives the file that can undo it."""
    script = script.resolve()
    if script.read_bytes() != before:
        raise InputError(
            f"{script} was changed while it was tuned. Nothing was written. "
            "Run `fuelline tune` again, or paste the settings."
        )
    make_folder(folder, is_new=False)
    _check_folder(folder)
    change = PatchedScript(
        script=str(script), original=before, changed_sha256=_hash(after), made_ns=made_ns
    )
    kept = folder / f"{made_ns}.json"
    _replace(kept, msgspec.json.encode(change))
    _replace(script, after)
    return kept


def undo_last(folder: Path, script: Path | None = None) -> PatchedScript:
    """Restore the script that was changed last, or the last change of a given one."""
    wanted = str(script.resolve()) if script is not None else None
    for name in _list_changes(folder):
        change = _read_change(folder, name)
        if change is not None and wanted in (None, change.script):
            _restore(change)
            (folder / name).unlink()
            return change
    what = f"No change of {script}" if script is not None else "No change"
    raise InputError(
        f"{what} is there to undo in {folder}. Nothing was written. "
        "`fuelline tune --apply` makes changes that can be undone."
    )


def _list_changes(folder: Path) -> list[str]:
    """Names of what was kept, the newest first."""
    if not os.path.lexists(folder):
        return []
    _check_folder(folder)
    found = [name for name in list_below(folder) if _KEPT.fullmatch(name)]
    return sorted(found, key=lambda name: int(name.partition(".")[0]), reverse=True)


_KEPT = re.compile(r"\d{1,20}\.json")
_MOST_BYTES = 64 * 1024 * 1024


def _check_folder(folder: Path) -> None:
    if not is_own_folder(folder):
        raise RefusedError(
            f"{folder} is a link, belongs to somebody else, or others can write there: what it "
            "holds may be anybody's code. Nothing was written. `chmod go-w` it if it is yours, or "
            "set FUELLINE_HOME to a folder of yours."
        )


def _read_change(folder: Path, name: str) -> PatchedScript | None:
    """A change that we wrote; None for what others did, or what is damaged."""
    try:
        descriptor = open_below(folder, name)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not is_own_file(descriptor) or os.fstat(descriptor).st_size > _MOST_BYTES:
            return None
        content = file.read(_MOST_BYTES)
    try:
        return decode_json(content, PatchedScript)
    except msgspec.DecodeError:
        return None


def _restore(change: PatchedScript) -> None:
    path = Path(change.script)
    try:
        content = read_below(path.parent, path.name, _MOST_BYTES)
        is_ours = is_own(path.lstat())
    except (OSError, ValueError):  # gone, a link, a name with a zero in it
        content, is_ours = b"", True
    if not is_ours:
        raise RefusedError(
            f"{path} belongs to another user. Nothing was written, so that nobody's code is "
            "replaced. Let its owner run `fuelline undo`, or take the settings out by hand."
        )
    if _hash(content) != change.changed_sha256:
        raise InputError(
            f"{path} was changed after `fuelline tune --apply`, or is gone. Nothing was written, "
            "so that no work is lost. Take the settings out by hand."
        )
    _replace(path, change.original)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _replace(path: Path, content: bytes) -> None:
    """All or nothing, also when the power fails."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copystat(path, name)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
