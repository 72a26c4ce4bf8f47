"""A folder to measure a disk in: checked for room before, deleted after, whatever happens.

It lies among the user's data, in a place where others may write. So it is private, has a name that
nobody could have put there before, is worked in by its descriptor (another folder that gets its
name meanwhile is not touched), and only files with names of ours are deleted from it. While a
probe runs it holds a lock on a file in its folder; where that file is and the lock is free, the
probe ended by `kill -9` or a power cut, and the next one of the same place removes what it left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import socket
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.files import is_own
from fuelline.schema.units import size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFIX = ".fuelline-probe-"
SPARE_SHARE = 0.05
"""Of the disk: a probe must leave this much free; ext4 itself reserves as much for root."""
_OURS = re.compile(re.escape(PREFIX) + "[0-9a-f]{16}")
_LOCK = "probe.lock"
_FILES = re.compile(rf"large|\d+\.small|{re.escape(_LOCK)}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class ProbeFolder:
    """Where to measure: files called `large` and `0.small`, `1.small` and so on."""

    descriptor: int
    """Of the folder."""
    size_bytes: int
    """Of the large file; the small ones take a quarter of it at most."""
    seconds: float
    """For each measurement."""

    def open(self, name: str, mode: Literal["rb", "xb"]) -> BinaryIO:
        """A file in the folder, unbuffered; an old one is never written to."""
        file = open(name, mode, buffering=0, opener=self._open)  # noqa: SIM115
        return cast("BinaryIO", file)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o600, dir_fd=self.descriptor)


@contextlib.contextmanager
def prepare_place(path: Path, size_bytes: int, seconds: float) -> Iterator[ProbeFolder]:
    """Make the folder; it is gone at the end."""
    if not path.is_dir():
        raise InputError(f"{path} is not a folder. Nothing was measured. Name one on the disk.")
    _remove_stale(path)
    _check_room(path, size_bytes)
    folder = path / f"{PREFIX}{secrets.token_hex(8)}"
    descriptor = -1
    try:  # an interrupt may come at any line from here on
        descriptor = _make(folder)
        with _lock(descriptor):
            yield ProbeFolder(descriptor, size_bytes, seconds)
    except OSError as error:
        raise RefusedError(
            f"{path} failed while it was measured ({error.strerror}). What was written is "
            "deleted. Try another folder, or a smaller --size."
        ) from error
    finally:
        if descriptor >= 0:
            _remove(folder, descriptor)
            os.close(descriptor)
        elif folder.exists():
            folder.rmdir()


def _make(folder: Path) -> int:
    try:
        folder.mkdir(0o700)
        return os.open(folder, _FOLDER)
    except OSError as error:
        raise RefusedError(
            f"{folder.parent} cannot be written ({error.strerror}). Its storage was not measured. "
            "Name a folder that you may write to: fuelline probe PATH"
        ) from None


@contextlib.contextmanager
def _lock(folder: int) -> Iterator[None]:
    """Hold the lock; what is in the file is written under it, so that nobody finds it free."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(_LOCK, flags, 0o600, dir_fd=folder)
    try:
        if _is_free(descriptor):  # not where the file system has no locks
            os.write(descriptor, _sign())
        yield
    finally:
        os.close(descriptor)


def _is_free(descriptor: int) -> bool:
    """Whether we have the lock now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sign() -> bytes:
    """With the host, as not every file system shows locks to other hosts."""
    return f"fuelline probe on {socket.gethostname()}\n".encode()


def _check_room(path: Path, size_bytes: int) -> None:
    status = os.statvfs(path)
    if status.f_flag & os.ST_RDONLY:
        raise RefusedError(
            f"{path} is read-only. Its storage was not measured, since that needs files of known "
            "content. Name a folder on a disk that can be written: fuelline probe PATH"
        )
    free = status.f_bavail * status.f_frsize
    spare = SPARE_SHARE * status.f_blocks * status.f_frsize
    needed = 1.25 * size_bytes
    if free - needed < spare:
        raise RefusedError(
            f"{path} has {size(free)} free, and a probe of {size(needed)} would leave less than "
            f"{SPARE_SHARE:.0%} of the disk. Nothing was written. Try --size with less."
        )


def _remove_stale(path: Path) -> None:
    for name in os.listdir(path):  # noqa: PTH208 - names are all that is needed
        if _OURS.fullmatch(name):
            try:
                _remove_if_left(path / name)
            except OSError:
                pass  # not ours, or gone by now: another probe may do the same


def _remove_if_left(folder: Path) -> None:
    descriptor = os.open(folder, _FOLDER)
    try:
        if is_own(os.fstat(descriptor)) and _is_left(descriptor):
            _remove(folder, descriptor)
    finally:
        os.close(descriptor)


def _is_left(folder: int) -> bool:
    """Whether a probe of this host made it, and runs no more."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(_LOCK, flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        return os.read(descriptor, 1024) == _sign() and _is_free(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path, descriptor: int) -> None:
    """Delete our files, and the folder if nothing else is in it and it still has its name."""
    try:
        for name in filter(_FILES.fullmatch, os.listdir(descriptor)):
            os.unlink(name, dir_fd=descriptor)
        if os.path.samestat(folder.lstat(), os.fstat(descriptor)):
            folder.rmdir()
    except OSError:
        pass  # a disk that fails; the next probe tries again
