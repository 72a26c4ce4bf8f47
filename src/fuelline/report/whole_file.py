"""A file that is written whole or not at all, packed if its name says so."""

from __future__ import annotations

import gzip
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from fuelline.schema import files
from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_AS_USUAL = 0o666
"""Less what the user's umask takes away: an export is made to be shown."""


@contextmanager
def write_whole(path: Path) -> Iterator[BinaryIO]:
    """A stream to write to; the file appears under its name when all went well."""
    try:
        with files.write_whole(path, _AS_USUAL) as file:
            if path.name.endswith(".gz"):
                with gzip.open(file, "wb", compresslevel=3) as packed:
                    yield cast("BinaryIO", packed)
            else:
                yield file
    except OSError as error:
        raise RefusedError(
            f"{path} cannot be written ({error.strerror}). Nothing was exported. Choose another "
            "place, or make room."
        ) from None
