"""A folder to measure a disk in: checked for room before, deleted after, whatever happens.

The folder is called `.fuelline-probe-PID`. One whose process is gone, after `kill -9` or a power
cut, is removed by the next probe of the same place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.units import size

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = ".fuelline-probe-"
SPARE_SHARE = 0.05
"""Of the disk: a probe must leave so much free; ext4 itself reserves as much for root."""


@dataclass(frozen=True)
class Place:
    """Where to measure."""

    folder: Path
    size_bytes: int
    """Of the large file; the small ones take a quarter of it at most."""
    seconds: float
    """For each measurement."""


@contextlib.contextmanager
def prepare_place(path: Path, size_bytes: int, seconds: float) -> Iterator[Place]:
    """Make the folder; it is gone at the end."""
    if not path.is_dir():
        raise InputError(f"{path} is not a folder. Nothing was measured. Name one on the disk.")
    _remove_stale(path)
    _check_room(path, size_bytes)
    folder = path / f"{PREFIX}{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise RefusedError(
            f"{path} cannot be written ({error.strerror}). Its storage was not measured. "
            "Name a folder that you may write to: fuelline probe PATH"
        ) from None
    try:
        yield Place(folder, size_bytes, seconds)
    except OSError as error:
        raise RefusedError(
            f"{path} failed while it was measured ({error.strerror}). What was written is "
            "deleted. Try another folder, or a smaller --size."
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    for left in path.glob(f"{PREFIX}[0-9]*"):
        pid = left.name.removeprefix(PREFIX)
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
