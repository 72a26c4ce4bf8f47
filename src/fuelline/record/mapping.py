"""Shared mappings of a file that keep no descriptor of it.

Python's own `mmap` objects (before 3.13) keep a duplicate of the descriptor and close that number
when they go. A job that has closed all descriptors, as daemons do, may use the number for something
else by then, and would lose it to us. So the C library is asked; torch has loaded ctypes anyway.

What nothing refers to any more is unmapped at the next mapping, not by a callback of a weak
reference: on entering that Python runs the job's signal handlers, and loses what they raise.
"""

import ctypes
import itertools
import os
import weakref
from typing import Any

__all__ = ["map_shared"]

_PROT_READ, _PROT_WRITE, _MAP_SHARED = 1, 2, 1
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

_mapped: dict[int, tuple[weakref.ref[Any], int, int]] = {}
_fresh = itertools.count().__next__


def map_shared(fd: int, offset: int, size_bytes: int) -> memoryview:
    """Bytes of the file from `offset`, writable."""
    _unmap_the_dead()
    prot = _PROT_READ | _PROT_WRITE
    address = _libc.mmap(None, size_bytes, prot, _MAP_SHARED, fd, offset)
    if address is None or address == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    array = (ctypes.c_ubyte * size_bytes).from_address(address)
    _mapped[_fresh()] = weakref.ref(array), address, size_bytes
    return memoryview(array).cast("B")


def _unmap_the_dead() -> None:
    for key, (array, address, size_bytes) in list(_mapped.items()):
        # Who takes the entry out unmaps; keys come once, while addresses are used again.
        if array() is None and _mapped.pop(key, None) is not None:
            _libc.munmap(address, size_bytes)
