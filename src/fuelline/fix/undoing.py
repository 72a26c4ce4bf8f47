"""Writes a patched script and keeps what was there, so that `fuelline undo` restores it exactly.

The original is kept before the script is touched; the script is replaced in one step, with its
permissions. Undoing refuses when the script was changed since: then it is not ours to overwrite.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from fuelline.schema.errors import InputError
from fuelline.schema.files import make_folder


class Change(msgspec.Struct, frozen=True, kw_only=True):
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
    change = Change(
        script=str(script), original=before, changed_sha256=_hash(after), made_ns=made_ns
    )
    kept = folder / f"{made_ns}.json"
    _replace(kept, msgspec.json.encode(change))
    _replace(script, after)
    return kept


def undo_last(folder: Path, script: Path | None = None) -> Change:
    """Restore the script that was changed last, or the last change of a given one."""
    wanted = str(script.resolve()) if script is not None else None
    for kept in sorted(folder.glob("*.json"), reverse=True):
        change = msgspec.json.decode(kept.read_bytes(), type=Change)
        if wanted in (None, change.script):
            _restore(change)
            kept.unlink()
            return change
    what = f"No change of {script}" if script is not None else "No change"
    raise InputError(
        f"{what} is there to undo in {folder}. Nothing was written. "
        "`fuelline tune --apply` makes changes that can be undone."
    )


def _restore(change: Change) -> None:
    path = Path(change.script)
    if not path.exists() or _hash(path.read_bytes()) != change.changed_sha256:
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
