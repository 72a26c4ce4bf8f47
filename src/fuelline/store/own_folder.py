"""Folders that we fill, and tidy by deleting: a cache, a pack. Which of them are ours.

A folder of ours has a marker in it. We take a folder that does not exist (and make it), one that is
empty (and mark it), or one with our marker; what holds anything else is somebody's data, and is
refused. Nor is a folder ours that another user owns or can write to: whoever can put files there
could have us read, or delete, what they chose.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from fuelline.schema.files import OWNER_FOLDER, is_own, is_own_folder, read_below

if TYPE_CHECKING:
    import re
    from pathlib import Path

CACHE_MARKER = ".fuelline-cache"
PACK_MARKER = ".fuelline-pack"
SHARED_MARKER = ".fuelline-shared-cache"
_TEXT = b"Fuelline keeps files here, and deletes its own without asking. Keep yours elsewhere.\n"
_OF_A_DISK = "lost+found"
"""In the root of a file system that is otherwise empty."""


class NotOursError(Exception):
    """Why a folder cannot be taken, as half a sentence."""


def take_folder(folder: Path, marker: str) -> None:
    """Make or mark a folder that we alone may write to; OSError if the disk refuses."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=OWNER_FOLDER)
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(20, "it is not a folder", str(folder)) from None
        check_own(folder)
    mark_folder(folder, marker)


def check_own(folder: Path) -> None:
    """Raise unless it belongs to us and others cannot write to it."""
    status = folder.stat()
    if not is_own(status):
        raise NotOursError(
            f"it belongs to user {status.st_uid} and you are {os.geteuid()}; name a folder inside "
            "it, which will be made"
        )
    if not is_own_folder(folder.resolve()):
        raise NotOursError(
            f"other users can write to it; `chmod go-w {folder}` stops that, or name a new folder "
            "inside it"
        )


def check_above(folder: Path) -> None:
    """Raise if just anybody could put another folder in the place of this one."""
    for above in folder.resolve().parents:
        try:
            status = above.stat()
        except FileNotFoundError:
            continue  # it will be made, for us alone
        if not status.st_mode & stat.S_IWOTH:
            continue
        if not status.st_mode & stat.S_ISVTX:
            raise NotOursError(
                f"anybody can rename what is in {above}; `chmod +t {above}` stops that"
            )
        if status.st_uid not in (os.geteuid(), 0):  # whom the sticky bit does not bind
            raise NotOursError(f"user {status.st_uid} can rename what everybody has in {above}")


def mark_folder(folder: Path, marker: str) -> None:
    """Mark an empty folder; leave one that is marked; refuse any other."""
    if is_marked(folder, marker):
        return
    foreign = sorted(name for name in os.listdir(folder) if name != _OF_A_DISK)  # noqa: PTH208
    if foreign and not is_marked(folder, marker):  # by another process, since we looked
        raise NotOursError(
            f"it holds files that are not ours to touch, such as {foreign[0]}, and no {marker}; "
            "name an empty folder or a new one"
        )
    try:
        descriptor = os.open(
            folder / marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644
        )
    except FileExistsError:
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(_TEXT)


def is_marked(folder: Path, marker: str) -> bool:
    """Whether our marker is in it; one that is being written at this moment counts."""
    try:
        return _TEXT.startswith(read_below(folder, marker, len(_TEXT)))
    except OSError:
        return False


def list_own(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """Names that match as a whole, of regular files of ours: the only ones that we ever delete."""
    found = []
    with os.scandir(folder) as listing:
        for entry in listing:
            if pattern.fullmatch(entry.name) is None:
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and is_own(status):
                found.append(entry.name)
    return sorted(found)
