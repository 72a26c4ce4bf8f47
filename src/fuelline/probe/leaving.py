"""Ends the job from inside, at once and in order: exit functions run, no child stays behind.

The script's frames are left as they are; none of its `except` or `finally` runs. Exit functions
(those of `tempfile`, `logging`, `multiprocessing` among them) do. A process that `multiprocessing`
started has only that library's; its parent, whose script would go on without a trained model, is
ended with it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import util
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["leave_job"]

GRACE_S = 5.0
"""Exit functions of the job may take this long; a hanging one must not keep the user waiting."""


def leave_job(others_drive: Callable[[], bool]) -> NoReturn:
    """Does not return; a process that `multiprocessing` started also ends its parent, at the last.

    `others_drive` says whether other processes of the job still need that parent.
    """
    threading.Thread(target=_leave_later, daemon=True).start()
    try:
        for child in multiprocessing.active_children():
            child.terminate()
        parent = multiprocessing.parent_process()
        if parent is None:
            atexit._run_exitfuncs()
        else:
            util._exit_function()  # type: ignore[attr-defined]
            if not others_drive() and parent.pid is not None:
                os.kill(parent.pid, signal.SIGTERM)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _leave_later() -> None:
    threading.Event().wait(GRACE_S)
    os._exit(0)
