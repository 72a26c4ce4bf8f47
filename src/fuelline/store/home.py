"""A user's folder that is ours: runs, measured devices, originals; refused if others planted it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.schema.errors import RefusedError
from fuelline.schema.files import is_own_file, is_own_folder, list_below, open_below
from fuelline.store.config import read_config
from fuelline.store.own_folder import NotOursError, check_above

if TYPE_CHECKING:
    from collections.abc import Callable

HOME_VARIABLE = "FUELLINE_HOME"


def home_folder() -> Path:
    """`$FUELLINE_HOME`, `store` of the user's configuration, or the user's data folder.

    RefusedError if others may have planted it.

    What is above a folder that the user named for us is the user's own choice; a home folder or a
    data folder that happens to be where everybody can write (`HOME=/tmp`) was named for no such
    thing.
    """
    named = os.environ.get(HOME_VARIABLE) or read_config().store
    data = os.environ.get("XDG_DATA_HOME")
    try:
        if named:
            return _check_store(Path(named).expanduser())
        base = Path(data) if data else Path("~/.local/share").expanduser()
    except RuntimeError:  # a user without a home, as containers run many
        return _make_fallback(Path("/tmp") / f"fuelline-{os.getuid()}")
    folder = base / "fuelline"
    try:
        check_above(folder)
    except (NotOursError, OSError, RuntimeError) as reason:  # RuntimeError: links in a circle
        raise _untrusted(folder, str(reason)) from None
    return _check_store(folder)


def _check_store(folder: Path) -> Path:
    """Raise if it is there and another user's, or everybody can write to it.

    A group may: `umask 002` makes folders so where each user has their own group. It may be a
    link, of ours, to a disk with more room. What the administrator made for us is as good as ours.
    """
    try:
        link, status = folder.lstat(), folder.stat()
    except OSError:
        return folder  # not there, or of no use: whoever uses it says so
    owner = next((each.st_uid for each in (link, status) if each.st_uid not in _trusted()), None)
    if owner is not None:
        raise _untrusted(folder, f"it belongs to user {owner} and you are {os.geteuid()}")
    if status.st_mode & stat.S_IWOTH:
        raise _untrusted(folder, f"everybody can write there; `chmod o-w {folder}` ends that")
    return folder


def _trusted() -> tuple[int, int]:
    return os.geteuid(), 0


def _untrusted(folder: Path, reason: str) -> RefusedError:
    return RefusedError(f"{folder} is not a safe place for runs: {reason}. {_NO_STORE}")


def _make_fallback(folder: Path) -> Path:
    """A folder where anybody can make one: it must be ours alone, and no link."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise RefusedError(f"{folder} cannot be made ({error.strerror}). {_NO_STORE}") from None
    if not is_own_folder(folder):
        raise RefusedError(
            f"{folder} is a link, belongs to somebody else, or others can write there. {_NO_STORE}"
        )
    return folder


_NO_STORE = (
    f"Others could put runs there, so it is not used. Set {HOME_VARIABLE} to a folder of yours, "
    "or to a new one, which will be made."
)


def saved_chips(say: Callable[[str], None]) -> list[Path]:
    """Catalogue files of devices that `fuelline roofline --save` measured; others' are ignored.

    `say` gets which, and why.
    """
    try:
        folder = home_folder() / "chips"
        names = [name for name in list_below(folder) if name.endswith(".toml")]
    except RefusedError as error:
        say(f"{error} Devices that were measured are not known.")
        return []
    except OSError:
        return []
    return [folder / name for name in names if _is_trusted(folder, name, say)]


def _is_trusted(folder: Path, name: str, say: Callable[[str], None]) -> bool:
    try:
        descriptor = open_below(folder, name)
    except OSError as error:
        say(f"{folder / name} is ignored ({error.strerror}). {_IGNORED}")
        return False
    try:
        is_ours = is_own_file(descriptor)
    finally:
        os.close(descriptor)
    if not is_ours:
        say(
            f"{folder / name} is ignored: it is another user's, or others can write to it. "
            f"{_IGNORED} If it is yours, `chmod go-w {folder / name}`."
        )
    return is_ours


_IGNORED = "Its device is not known to this command."


def compared_folder() -> Path | None:
    """Where it is recorded which large files of packs were compared; None without a store."""
    try:
        return home_folder() / "compared"
    except RefusedError:
        return None
