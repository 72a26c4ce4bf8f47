"""How many files a process of the job got from a pack or the cache, written down for the report.

Counting is adding to a list; once a second at most, and when the process ends, the numbers go to a
small file of the process in the run's folder. What a process that is killed counted in its last
second is lost. Standard library only, and nothing here is raised into the job.
"""
# ruff: noqa: PTH118 - a guest loads as little as it can; no pathlib

from __future__ import annotations

import atexit
import os
import sys
from time import monotonic

from fuelline.schema.run.run_folder import SERVED, SERVED_DIR

__all__ = ["ServedCounts"]

_EVERY_S = 1.0
_open, _mkdir = os.open, os.mkdir
"""As they are before they are replaced."""


class ServedCounts:
    """The numbers of this process; after a fork, those of the child."""

    def __init__(self, run_dir: str) -> None:
        self._folder = os.path.join(run_dir, SERVED_DIR)
        self._counts = [0] * len(SERVED)
        self._written_s = 0.0
        self._is_able = True
        self._is_heard = False
        os.register_at_fork(before=self._prepare, after_in_child=self._begin)
        atexit.register(self.write)

    def add(self, what: int) -> None:
        """One more file; `what` is a place in SERVED."""
        self._counts[what] += 1
        if monotonic() - self._written_s >= _EVERY_S:
            self.write()

    def _prepare(self) -> None:
        """Before a child is made: of one of multiprocessing `atexit` does not see the end."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not self._is_heard:
            self._is_heard = True
            util.register_after_fork(
                self, lambda counts: util.Finalize(None, counts.write, exitpriority=0)
            )

    def _begin(self) -> None:
        self._counts = [0] * len(SERVED)
        self._written_s = 0.0

    def write(self) -> None:
        """Always as many bytes, so that no moment shows less than was there before."""
        self._written_s = monotonic()
        if not self._is_able or not any(self._counts):
            return
        try:
            self._put("".join(f"{count:020d}\n" for count in self._counts).encode())
        except OSError:  # no run's folder, or no room in it
            self._is_able = False

    def _put(self, content: bytes) -> None:
        try:
            _mkdir(self._folder, 0o700)
        except FileExistsError:
            pass
        path = os.path.join(self._folder, str(os.getpid()))
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = _open(path, flags, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
