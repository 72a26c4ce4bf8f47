"""Raises the process's soft limit of open files when it comes near; the hard one is not touched.

Each tensor that waits to be taken holds a descriptor. Standard library only.
"""

from __future__ import annotations

import os
import resource

__all__ = ["MOST", "make_room"]

NEAR = 0.7
"""Of the soft limit: a burst of batches takes the rest."""
MOST = 65_536
"""Programs that loop over all possible descriptors take seconds with a million of them."""


def make_room(in_use: int | None = None) -> tuple[int, int] | None:
    """The limit before and after, if it had to be raised and could be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = len(os.listdir("/proc/self/fd")) if in_use is None else in_use  # noqa: PTH208
    wanted = min(4 * soft, MOST, hard if hard != resource.RLIM_INFINITY else MOST)
    if count < NEAR * soft or wanted <= soft:
        return None
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, wanted
