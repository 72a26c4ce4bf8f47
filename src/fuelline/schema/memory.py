"""Files in memory that have a descriptor and no name. Standard library only.

A Python that was built where the C library had no `memfd_create` (glibc before 2.27) lacks it, and
the constants of sealing, wherever it runs. So the numbers are here, and the library of the host is
asked where Python does not offer the call.
"""

import errno
import fcntl
import os

__all__ = ["make_memory", "seal_size"]

_CLOSE_ON_EXEC, _ALLOW_SEALING, _NO_EXEC = 1, 2, 8
"""Flags of memfd_create(2). Some hosts ask for the last (vm.memfd_noexec), kernels before 6.3
refuse what they do not know."""
_ADD_SEALS = 1033
_SEALS = 1 | 2 | 4
"""No more seals, no shrinking, no growing: see fcntl(2)."""


def make_memory(name: str) -> int:
    """A descriptor of an empty file; OSError if there is none to be had."""
    flags = _CLOSE_ON_EXEC | _ALLOW_SEALING
    create = getattr(os, "memfd_create", _ask_library)
    try:
        return int(create(name, flags | _NO_EXEC))
    except OSError as refusal:
        if refusal.errno != errno.EINVAL:
            raise
        return int(create(name, flags))


def seal_size(descriptor: int) -> None:
    """Nobody can change its size any more, so that a map of it is safe."""
    fcntl.fcntl(descriptor, _ADD_SEALS, _SEALS)


def _ask_library(name: str, flags: int) -> int:
    try:
        import ctypes  # noqa: PLC0415 - most do not need it

        create = ctypes.CDLL(None, use_errno=True).memfd_create
    except (ImportError, AttributeError):
        raise OSError(errno.ENOSYS, "files in memory cannot be made here") from None
    descriptor = create(name.encode(), ctypes.c_uint(flags))
    if descriptor < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return int(descriptor)
