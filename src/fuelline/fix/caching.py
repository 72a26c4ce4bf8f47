"""The cache's folder, before and after a job: made, tidied, counted, and which mounts are slow."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.fix.adapters.local_cache import make_room
from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_TYPES = ("nfs", "cifs", "smb", "lustre", "gpfs", "ceph", "beegfs", "glusterfs", "9p", "afs")
"""Beginnings of the names of file systems that are reached over a network; FUSE's are added."""
_BOOT = "boot"
_DRAFTS = "drafts"
_OBJECTS = "objects"
_SYNCED = "synced"
_LEAST_BYTES = 1 << 20
"""With less room on the disk nothing worth the name can be cached."""


@contextlib.contextmanager
def open_cache(folder: Path, budget_bytes: int) -> Iterator[None]:
    """Ready for a job; synced after the last one that uses it, so that it outlives a power cut."""
    try:
        with _join(folder) as users:
            _prepare(folder, budget_bytes)
            yield
            _close(folder, users)
    except _NotReadyError as error:
        raise RefusedError(
            f"{folder} cannot be used as a cache ({error}). The job was not started. Name a folder "
            "on a disk that can be written, and has room, with --cache."
        ) from None


class _NotReadyError(Exception):
    """What the disk said."""


@contextlib.contextmanager
def _join(folder: Path) -> Iterator[int]:
    """Be one of the cache's users: a shared lock that a killed process lets go of."""
    try:
        for name in (_OBJECTS, _DRAFTS):
            (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        users = os.open(folder / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _NotReadyError(error.strerror) from None
    try:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield users
    finally:
        os.close(users)


def _prepare(folder: Path, budget_bytes: int) -> None:
    try:
        _forget_unsynced(folder)
        _remove_drafts(folder)
        used = make_room(str(folder / _OBJECTS), budget_bytes, time.time_ns())
        (folder / "ledger").write_bytes(b"%020d" % used)
        (folder / _BOOT).write_text(_boot_id())
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise _NotReadyError(error.strerror) from None
    if free + used < min(budget_bytes, _LEAST_BYTES):
        raise _NotReadyError("its disk is full")


def _close(folder: Path, users: int) -> None:
    """Whoever else uses it is still filling it, and closes it later."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ctypes.CDLL(None).syncfs(users)
        (folder / _BOOT).write_text(_SYNCED)
    except OSError:
        return  # then it is made anew after the next boot


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _forget_unsynced(folder: Path) -> None:
    """After a power cut a file can have its size without its content: only synced ones count."""
    mark = folder / _BOOT
    if mark.exists() and mark.read_text() not in (_SYNCED, _boot_id()):
        shutil.rmtree(folder / _OBJECTS)
        (folder / _OBJECTS).mkdir(mode=0o700)


def _remove_drafts(folder: Path) -> None:
    """Of processes that are gone; others may be at work in the same cache."""
    for draft in (folder / _DRAFTS).iterdir():
        pid = draft.name.partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            draft.unlink(missing_ok=True)


def find_slow_mounts(mountinfo: str) -> list[str]:
    """Mount points of file systems that are not local."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) < 5 or not kinds:
            continue
        kind = kinds[0]
        if kind.startswith((*SLOW_TYPES, "fuse")) and kind not in ("fusectl", "fuse.lxcfs"):
            found.append(fields[4].encode().decode("unicode_escape"))
    return found
