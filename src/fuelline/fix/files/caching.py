"""The cache's folder, before and after a job: made, tidied, counted, and which mounts are slow."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.fix.files.local_cache import Ledger, make_room
from fuelline.fix.files.shared_cache import KEY_BYTES, forget_marks
from fuelline.schema.errors import RefusedError
from fuelline.schema.files import (
    OWNER_FOLDER,
    enter_below,
    is_own,
    make_folder,
    read_below,
    write_whole,
)
from fuelline.store.own_folder import (
    CACHE_MARKER,
    SHARED_MARKER,
    NotOursError,
    check_above,
    check_own,
    list_own,
    mark_folder,
    take_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOOT = "boot"
_DRAFTS = "drafts"
_OBJECTS = "objects"
_SYNCED = "synced"
_DRAFT = re.compile(r"(\d+)-\d+")
_ALL = 1 << 63
_LEAST_BYTES = 1 << 20
"""With less room on the disk nothing worth the name can be cached."""


@contextlib.contextmanager
def open_cache(folder: Path, budget_bytes: int) -> Iterator[None]:
    """Ready for a job; synced after the last one that uses it, so that it outlives a power cut.

    Its content is believed, so it must be ours alone.
    """
    try:
        _take(folder)
        with _join(folder) as users:
            _forget_unsynced(folder)
            _tidy(folder, folder / _OBJECTS, budget_bytes)
            _write_boot(folder, _boot_id())
            yield
            _close(folder, users)
    except NotOursError as reason:
        raise _refusal(folder, str(reason)) from None


def open_shared_cache(folder: Path, budget_bytes: int, key_file: Path) -> None:
    """Ready a cache that other users write to as well.

    Who may is for the folder's mode to say, so the user makes it. Nothing of it is believed: every
    copy is checked against a mark that only the owner of the key can have made.
    """
    try:
        _check_there(folder)
        mark_folder(folder, SHARED_MARKER)
        _make_shared(folder)
        own = folder / str(os.geteuid())
        _make_own(own)
        _make_own(own / "marks")
        _tidy(own, folder / _OBJECTS, budget_bytes)
        forget_marks(str(folder))
    except NotOursError as reason:
        raise _refusal(folder, str(reason)) from None
    except OSError as error:
        raise _refusal(folder, error.strerror or str(error)) from None
    _make_key(key_file)


def _take(folder: Path) -> None:
    try:
        take_folder(folder, CACHE_MARKER)
        check_above(folder)
    except OSError as error:
        raise NotOursError(error.strerror) from None


def _refusal(folder: Path, reason: str) -> RefusedError:
    return RefusedError(
        f"{folder} cannot be used as a cache: {reason}. The job was not started. Name another "
        "folder with --cache, one on a local disk with room."
    )


def _check_there(folder: Path) -> None:
    if not folder.is_dir():
        raise NotOursError(f"it is not there; `mkdir -m 1777 {folder}` makes one for all users")


def _make_shared(folder: Path) -> None:
    """The folder of copies, with the rights of the folder around it, whatever the umask says."""
    rights = stat.S_IMODE(folder.stat().st_mode)
    if rights & 0o022 and not rights & stat.S_ISVTX:
        raise NotOursError(f"its users could rename each other's files; `chmod +t {folder}` first")
    try:
        (folder / _OBJECTS).mkdir(mode=OWNER_FOLDER)
    except FileExistsError:
        pass
    else:
        with enter_below(folder, [_OBJECTS]) as objects:
            os.fchmod(objects, rights)
    with enter_below(folder, [_OBJECTS]):
        return  # it is no link


def _make_own(folder: Path) -> None:
    try:
        folder.mkdir(mode=OWNER_FOLDER)
    except FileExistsError:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise NotOursError(f"{folder} is not a folder") from None
        check_own(folder)


def _make_key(path: Path) -> None:
    """What the marks are made with; whoever has it can make us believe a copy."""
    try:
        make_folder(path.parent, is_new=False)
        if not path.exists():
            with write_whole(path) as file:
                file.write(secrets.token_bytes(KEY_BYTES))
        status = path.lstat()
    except OSError as error:
        raise RefusedError(
            f"{path} cannot be made ({error.strerror}). A shared cache needs it to check what "
            "others could have changed, so the job was not started. Set FUELLINE_HOME to a folder "
            "of yours."
        ) from None
    if not is_own(status) or status.st_mode & 0o077 or not stat.S_ISREG(status.st_mode):
        raise RefusedError(
            f"{path} is not yours alone, so a shared cache cannot be checked with it. The job was "
            f"not started. `rm {path}` and try again: a new one is made."
        )


@contextlib.contextmanager
def _join(folder: Path) -> Iterator[int]:
    """Be one of the cache's users: a shared lock that a killed process lets go of."""
    try:
        _make_own(folder / _OBJECTS)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        users = os.open(folder / "users", flags, 0o600)
    except OSError as error:
        raise NotOursError(error.strerror) from None
    try:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield users
    finally:
        os.close(users)


def _tidy(folder: Path, objects: Path, budget_bytes: int) -> None:
    """Room for new copies, and no drafts of processes that are gone."""
    try:
        _make_own(folder / _DRAFTS)
        _remove_drafts(folder / _DRAFTS)
        used = make_room(str(objects), budget_bytes, time.time_ns())
        with Ledger(str(folder)) as ledger:
            ledger.write(used)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise NotOursError(error.strerror or str(error)) from None
    if free + used < min(budget_bytes, _LEAST_BYTES):
        raise NotOursError("its disk is full")


def _close(folder: Path, users: int) -> None:
    """Whoever else uses it is still filling it, and closes it later."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ctypes.CDLL(None).syncfs(users)
        _write_boot(folder, _SYNCED)
    except (OSError, NotOursError):
        return  # then it is made again after the next boot


def _write_boot(folder: Path, text: str) -> None:
    try:
        with write_whole(folder / _BOOT) as file:
            file.write(text.encode())
    except OSError as error:
        raise NotOursError(error.strerror) from None


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _forget_unsynced(folder: Path) -> None:
    """After a power cut a file can have its size without its content: only synced ones count."""
    try:
        mark = read_below(folder, _BOOT, 100).decode("ascii", "replace")
        if mark not in (_SYNCED, _boot_id()):
            make_room(str(folder / _OBJECTS), -1, _ALL)
    except FileNotFoundError:
        return
    except OSError as error:
        raise NotOursError(error.strerror) from None


def _remove_drafts(drafts: Path) -> None:
    """Of processes that are gone; others may be at work in the same cache."""
    for name in list_own(drafts, _DRAFT):
        if not Path(f"/proc/{name.partition('-')[0]}").exists():
            (drafts / name).unlink(missing_ok=True)
