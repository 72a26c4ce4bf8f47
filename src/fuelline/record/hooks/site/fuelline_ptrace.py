"""Tells Yama that one process, the observer, may look at this one; needed at ptrace_scope 1.

Loaded only there, because it needs ctypes. The permission ends with the process and is not
inherited, so each forked child asks again. A refusal changes nothing for the job.
"""

import ctypes
import os

PR_SET_PTRACER = 0x59616D61
"""See prctl(2); the letters spell Yama."""


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def allow(observer_pid: int) -> "Callable[[], None]":
    """Let the observer read this process's system calls, and those of children forked from it.

    What is returned takes it back.
    """
    prctl = ctypes.CDLL(None).prctl
    allowed = [observer_pid]

    def ask() -> None:
        if allowed:
            prctl(PR_SET_PTRACER, *map(ctypes.c_ulong, (*allowed, 0, 0, 0)))

    def forbid() -> None:
        allowed.clear()
        prctl(PR_SET_PTRACER, *map(ctypes.c_ulong, (0, 0, 0, 0)))

    ask()
    os.register_at_fork(after_in_child=ask)
    return forbid
