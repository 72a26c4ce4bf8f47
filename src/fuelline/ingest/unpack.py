"""A file's bytes, unpacked on the way if they are packed: gzip with several members, zstd, plain.

Told by the first bytes, not by the name. Never holds more than one block. A packed file that is
damaged or cut short says at which byte; one that grows beyond reason is refused before it fills
the memory or the disk. An offset in a refusal is one of the file as it is on the disk, or says
that it counts what was unpacked.
"""

from __future__ import annotations

import errno
import importlib
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO

import zstandard

from fuelline.schema.errors import InputError
from fuelline.schema.files import refuse_holes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def _find_inflater() -> Any:
    """Isal is three times as fast as zlib; a platform without a wheel of it still works."""
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return importlib.import_module("zlib")


zlib = _find_inflater()
READ_BYTES = 64 * 1024
"""Packed bytes at a time: traces unpack to about twenty times as many."""
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_WBITS = 31
_BOMB_BYTES = 256 * 1024 * 1024
_BOMB_RATIO = 250
"""Real traces shrink 15 to 60 times. Deflate can do 1032, zstd more: nobody's trace does."""
_MOST_BLOCK = 256 * 1024
"""Unpacked bytes at a time: larger blocks are fresh memory from the system each time."""
_ZSTD_BYTES = 1024
"""Packed zstd at a time: a kilobyte can hold 256 blocks, each of 128 kB when unpacked."""


class TruncatedError(InputError):
    """The file ends before it should; what came before may still be read."""


def is_packed(head: bytes) -> bool:
    """Whether a file that begins with these bytes must be unpacked first."""
    return head.startswith((GZIP_MAGIC, ZSTD_MAGIC))


def say_byte(path: Path, at: int) -> str:
    """An offset in the content of a file, in words that exclude one in the packed file."""
    with open_trace(path) as file:
        packed = is_packed(file.read(len(ZSTD_MAGIC)))
    return f"byte {at} of the unpacked content" if packed else f"byte {at}"


def refuse_packed(path: Path) -> None:
    """For formats that are read in place: say what to do with a packed file."""
    with open_trace(path) as file:
        head = file.read(len(ZSTD_MAGIC))
    if is_packed(head):
        tool = "gunzip" if head.startswith(GZIP_MAGIC) else "unzstd"
        raise InputError(
            f"{path} is packed (by its first bytes, at byte 0), and this format is read in "
            f"place. Nothing was imported. Unpack it first: `{tool} {path.name}`."
        )


def open_trace(path: Path) -> BinaryIO:
    """A file that the user named; a FIFO would hang and a device never end, so they are refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    file = os.fdopen(descriptor, "rb")
    try:
        refuse_holes(file, str(path))
    except OSError:
        file.close()
        raise
    return file


def read_blocks(path: Path, advance: Callable[[int], None]) -> Iterator[bytes]:
    """The unpacked content in blocks of any size; `advance` hears of packed bytes."""
    with open_trace(path) as file:
        first = file.read(READ_BYTES)
        advance(len(first))
        rest = iter(lambda: file.read(READ_BYTES), b"")
        packed = _heard(first, rest, advance)
        if first.startswith(GZIP_MAGIC):
            yield from _guarded(path, packed, _unpack_gzip)
        elif first.startswith(ZSTD_MAGIC):
            yield from _guarded(path, packed, _unpack_zstd)
        else:
            yield from packed


def read_head(path: Path, size_bytes: int) -> bytes:
    """The first unpacked bytes; what was read so far if the packing is damaged."""
    head = b""
    try:
        for block in read_blocks(path, lambda _: None):
            head += block
            if len(head) >= size_bytes:
                break
    except InputError:
        return head[:size_bytes]
    return head[:size_bytes]


def _heard(first: bytes, rest: Iterator[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    if first:
        yield first
    for block in rest:
        advance(len(block))
        yield block


class _Position:
    """How far into the packed and the unpacked bytes we are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.packed = 0
        self.unpacked = 0

    def check(self) -> None:
        """Refuse what unpacks beyond reason."""
        if self.unpacked > _BOMB_BYTES and self.unpacked > _BOMB_RATIO * self.packed:
            raise InputError(
                f"{self.path}: up to byte {self.packed} of the packed file it unpacks to more than "
                f"{self.unpacked} bytes, over {_BOMB_RATIO} times as many; no trace is like that, "
                "so this looks like a decompression bomb. Nothing was imported. If it is real, "
                "unpack it and import the plain file."
            )


def _guarded(
    path: Path,
    packed: Iterator[bytes],
    unpack: Callable[[_Position, Iterator[bytes]], Iterator[bytes]],
) -> Iterator[bytes]:
    place = _Position(path)
    for block in unpack(place, packed):
        place.unpacked += len(block)
        place.check()
        yield block


def _unpack_gzip(place: _Position, packed: Iterator[bytes]) -> Iterator[bytes]:
    stream = zlib.decompressobj(_GZIP_WBITS)
    is_open = True
    for block in packed:
        data: bytes = block
        while data:
            if stream.eof:
                data = data.lstrip(b"\0")  # padding after the last member is allowed
                if not data:
                    break
                if not data.startswith(GZIP_MAGIC[: len(data)]):
                    raise _damaged(place, "what follows the end of the packed data is not packed")
                stream = zlib.decompressobj(_GZIP_WBITS)
            try:
                yield stream.decompress(data, _MOST_BLOCK)
            except zlib.error as error:
                raise _damaged(place, str(error)) from None
            data = stream.unused_data if stream.eof else stream.unconsumed_tail
        place.packed += len(block)
        is_open = not stream.eof
    if is_open:
        raise _cut_short(place)


def _unpack_zstd(place: _Position, packed: Iterator[bytes]) -> Iterator[bytes]:
    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    is_open = True
    for block in packed:
        for start in range(0, len(block), _ZSTD_BYTES):
            data = block[start : start + _ZSTD_BYTES]
            while data:
                if stream.eof:
                    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
                try:
                    yield stream.decompress(data)
                except zstandard.ZstdError as error:
                    raise _damaged(place, str(error)) from None
                data = stream.unused_data if stream.eof else b""
            place.packed += min(_ZSTD_BYTES, len(block) - start)
        is_open = not stream.eof
    if is_open:
        raise _cut_short(place)


def _damaged(place: _Position, why: str) -> InputError:
    return InputError(
        f"{place.path}: the packed data is damaged after byte {place.packed} of the packed file "
        f"({why}). Nothing was imported. Copy the file again; `gzip -t` or `zstd -t` checks "
        "whether a copy is whole."
    )


def _cut_short(place: _Position) -> TruncatedError:
    return TruncatedError(
        f"{place.path} was cut short: the packed file ends at byte {place.packed}, in the middle. "
        "Nothing was imported. Copy the file again, or read what there is with "
        "`fuelline import --partial`."
    )
