"""Whatever a job leaves behind becomes our child, and is ended with it.

`PR_SET_CHILD_SUBREAPER` (prctl(2), no root) makes orphans of the job ours instead of init's.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

PR_SET_CHILD_SUBREAPER = 36
"""See prctl(2)."""
_GRACE_S = 2.0


def adopt_orphans() -> None:
    """From now on orphaned descendants are ours; a refusal only means that they are not."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> int:
    """Ask all our children to end, then make them; returns how many there were."""
    known: set[int] = set()
    until_s = time.monotonic() + _GRACE_S
    while children := _children():
        is_late = time.monotonic() > until_s
        for pid in children if is_late else children - known:
            os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
        known |= children
        _reap()
        signal.sigtimedwait([], 0.01)
    return len(known)


def _children() -> set[int]:
    _reap()
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123
        return {int(word) for word in file.read().split()}


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
