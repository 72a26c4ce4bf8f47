"""Tells Yama that one process, the observer, may look at this one; needed at ptrace_scope 1.

Loaded only there, because it needs ctypes. The permission ends with the process and is not
inherited, so each forked child asks again. A refusal changes nothing for the job.
"""

import ctypes
import os

PR_SET_PTRACER = 0x59616D61
"""See prctl(2); the letters spell Yama."""


def allow(observer_pid: int) -> None:
    """Let the observer read this process's system calls, and those of children forked from it."""
    prctl = ctypes.CDLL(None).prctl
    arguments = [ctypes.c_ulong(number) for number in (observer_pid, 0, 0, 0)]

    def ask() -> None:
        prctl(PR_SET_PTRACER, *arguments)

    ask()
    os.register_at_fork(after_in_child=ask)
