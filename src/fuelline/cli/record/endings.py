"""Signals that end a command which has something to leave behind: a job it started, a folder.

By default a signal ends Python on the spot. Here it becomes KeyboardInterrupt, so that whatever
`with` and `finally` promise is kept, and the command leaves with code 130.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def clean_up_on_signals() -> Iterator[None]:
    """For as long as there is something; what was ignored, as by `nohup`, stays so."""
    before = {each: signal.getsignal(each) for each in _ENDS}
    for each, known in before.items():
        if known is not signal.SIG_IGN:
            signal.signal(each, _interrupt)
    try:
        yield
    finally:
        for each, known in before.items():
            signal.signal(each, known)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Once: a second Ctrl-C must not end the deleting."""
    for each in _ENDS:
        signal.signal(each, _go_on)
    raise KeyboardInterrupt


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Not SIG_IGN, of which Python complains if both signals came at once."""
