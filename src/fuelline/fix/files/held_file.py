"""File objects over content that is in memory already, as `open` would make them.

`io.BufferedReader` and `io.TextIOWrapper` are Python's own. Below them stands the content instead
of a descriptor; one is made, in memory, when somebody asks for it (`fileno()`: `mmap`, C code,
subprocesses). That costs 17 us less a file than always making one. A host on which none can be made
gives that of the source, if the source has the same content. Standard library only.
"""

from __future__ import annotations

import io
import os
from typing import Any

from fuelline.schema.files import write_all
from fuelline.schema.memory import make_memory

__all__ = ["SIMPLE_MODES", "hold_in_memory", "open_held"]

SIMPLE_MODES = frozenset(("r", "rb", "br", "rt", "tr"))
"""Modes that are answered here; all others, and unbuffered files, get a real descriptor at once."""


def hold_in_memory(content: bytes | memoryview) -> int:
    """A descriptor of a file with this content, at its beginning; OSError if not all of it fits."""
    descriptor = make_memory("fuelline")
    try:
        if content:
            write_all(descriptor, content)
            os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class MemoryFile(io.BytesIO):
    """In the place of `io.FileIO`."""

    mode = "rb"

    def __init__(self, content: bytes, name: Any, source: str) -> None:
        super().__init__(content)
        self.name = name
        self._source = source
        self._file: io.FileIO | None = None

    def writable(self) -> bool:
        """It is not."""
        return False

    def fileno(self) -> int:
        """A real descriptor, at the position that was read up to; from now on it is the file."""
        if self._file is None:
            position = self.tell()  # raises ValueError if it is closed, as it should
            self._file = file = io.FileIO(self._make(), "rb")
            file.seek(position)
            for name in ("read", "readinto", "seek", "tell"):
                setattr(self, name, getattr(file, name))
        return self._file.fileno()

    def _make(self) -> int:
        content = self.getvalue()  # no copy, and no buffer that an exception would keep
        try:
            return hold_in_memory(content)
        except OSError:
            descriptor = _open(self._source, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.pread(descriptor, len(content) + 1, 0) == content:
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            raise

    def close(self) -> None:
        """Also the descriptor, if there is one."""
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()
        super().close()


def open_held(  # noqa: PLR0917 - as `open` has them
    content: bytes,
    name: Any,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    source: str,
) -> Any:
    """What `open(name, mode, ...)` gives; `source` is the absolute path."""
    size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    buffered = io.BufferedReader(MemoryFile(content, name, source), size)
    if "b" in mode:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]  # `open` itself sets it
    return text


# The original, from before the layer above was put in place.
_open = os.open
