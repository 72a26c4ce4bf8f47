"""A file that is written whole or not at all, packed if its name says so."""

from __future__ import annotations

import gzip
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def write_whole(path: Path) -> Iterator[BinaryIO]:
    """A stream to write to; the file appears under its name when all went well."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            if path.name.endswith(".gz"):
                with gzip.open(file, "wb", compresslevel=3) as packed:
                    yield cast("BinaryIO", packed)
            else:
                yield file
        draft.replace(path)
    except OSError as error:
        raise RefusedError(
            f"{path} cannot be written ({error.strerror}). Nothing was exported. Choose another "
            "place, or make room."
        ) from None
    finally:
        draft.unlink(missing_ok=True)
