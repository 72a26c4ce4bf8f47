"""What the elastic loader did, a line of JSON at a time, in the run's folder.

Written inside the job: standard library only. Each line is written by one call, so that it is there
or not, also when the job is killed; a folder that cannot be written costs the report, not the job.
"""

from __future__ import annotations

import json
import os
from time import monotonic_ns
from typing import Any

from fuelline.schema.redaction import redact

__all__ = ["FixJournal"]

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class FixJournal:
    """Appends events to this process's own file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, event: str, **facts: Any) -> None:
        """Keep one event."""
        shown = {name: redact(each) if type(each) is str else each for name, each in facts.items()}
        line = json.dumps({"event": event, "at_ns": monotonic_ns(), **shown}) + "\n"
        path = f"{self._folder}/{os.getpid()}.jsonl"
        try:
            _make(self._folder)
            fd = os.open(path, _APPEND, 0o600)
        except OSError:
            return
        try:
            os.write(fd, line.encode())
        except OSError:
            pass  # a full disk: the job goes on
        finally:
            os.close(fd)


def _make(folder: str) -> None:
    """In the run's folder, not the run's folder: who deletes a run under its job means it."""
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102 - no pathlib in the job
    except FileExistsError:
        return
