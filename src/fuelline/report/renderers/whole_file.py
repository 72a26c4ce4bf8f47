"""Files that the user names and we write: whole or not at all, packed if the name says so.

A file of that name that we wrote earlier is replaced, as with every tool; it is known by words that
all of its kind have near their beginning. Any other file is somebody's work, and is refused.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from fuelline.schema.errors import RefusedError, UsageError
from fuelline.schema.files import open_below, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD_BYTES = 4096
"""Of a file: the words that make it ours are within."""


def check_free(path: Path, sign: bytes) -> None:
    """Raise unless there is no such file, or one that has our sign."""
    try:
        status = path.lstat()
    except OSError:
        return  # nothing there, or nothing that could be written: then that will be said
    if stat.S_ISREG(status.st_mode) and sign in _read_head(path):
        return
    raise UsageError(
        f"{path} exists and was not written by this command. Nothing was written, so that nothing "
        "is lost. Name another file, or remove that one first."
    )


@contextmanager
def write_named(path: Path, sign: bytes) -> Iterator[BinaryIO]:
    """A stream to write to; the file appears under its name when all went well."""
    check_free(path, sign)
    try:
        with write_whole(path, mode=0o666) as file:  # less the umask: it was made to be passed on
            if _is_packed(path):
                with gzip.open(file, "wb", compresslevel=3) as packed:
                    yield cast("BinaryIO", packed)
            else:
                yield file
    except OSError as error:
        raise RefusedError(
            f"{path} cannot be written ({error.strerror}). Nothing was written. Choose another "
            "place, or make room."
        ) from None


def _is_packed(path: Path) -> bool:
    return path.name.endswith(".gz")


def _read_head(path: Path) -> bytes:
    try:
        with os.fdopen(open_below(path.parent, path.name), "rb") as file:
            if not _is_packed(path):
                return file.read(HEAD_BYTES)
            with gzip.open(file) as packed:
                return packed.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""
