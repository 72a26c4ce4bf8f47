"""Shared mappings of a file that keep no descriptor of it.

Python's own `mmap` objects (before 3.13) keep a duplicate of the descriptor and close that number
when they go. A job that has closed all descriptors, as daemons do, may use the number for something
else by then, and would lose it to us. So the C library is asked; torch has loaded ctypes anyway.
"""

import ctypes
import os
import weakref

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


def map_shared(fd: int, offset: int, size_bytes: int) -> memoryview:
    """Bytes of the file from `offset`, writable; unmapped when nothing refers to them any more."""
    prot = _PROT_READ | _PROT_WRITE
    address = _libc.mmap(None, size_bytes, prot, _MAP_SHARED, fd, offset)
    if address is None or address == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    array = (ctypes.c_ubyte * size_bytes).from_address(address)
    # Not at exit: threads of the job may still write, and the process is about to end anyway.
    weakref.finalize(array, _libc.munmap, address, size_bytes).atexit = False
    return memoryview(array).cast("B")
