"""What the elastic loader did, a line of JSON at a time, in the run's folder.

Written inside the job: standard library only. Each line is written by one call, so that it is there
or not, also when the job is killed; a folder that cannot be written costs the report, not the job.
"""

from __future__ import annotations

import json
import os
from time import monotonic_ns
from typing import Any

__all__ = ["Journal"]


class Journal:
    """Appends events to this process's own file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def tell(self, event: str, **facts: Any) -> None:
        """Keep one event."""
        line = json.dumps({"event": event, "at_ns": monotonic_ns(), **facts}) + "\n"
        path = f"{self._folder}/{os.getpid()}.jsonl"
        try:
            _make_folder(self._folder)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError:
            return
        try:
            os.write(fd, line.encode())
        except OSError:
            pass  # a full disk: the job goes on
        finally:
            os.close(fd)


def _make_folder(folder: str) -> None:
    """Make it, but not the run that it belongs to: a run that was deleted stays so."""
    try:
        os.mkdir(folder)  # noqa: PTH102 - no pathlib in the job
    except FileExistsError:
        pass
