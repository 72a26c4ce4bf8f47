"""The text of the lines that stacks show, read while the job runs and on its own host.

Later it could not be known any more whose file a frame names, and a recording from elsewhere would
make its reader open any file at all. So only here, and only what is Python source of the job: a
regular file named like one, or the script on the command line, of a sane size and without zeros.
A file is read when it is first seen (0.3 ms for 100 kB) and again only for lines that are new.
"""

import os
import re
from collections.abc import Iterator

from fuelline.schema.files import open_below
from fuelline.schema.redaction import redact_code
from fuelline.schema.run.samples import SourceLine, StackSample

MOST_LINES = 2000
"""Of one run; a training loop shows some hundreds."""
MOST_FILE_BYTES = 4 * 1024 * 1024
MOST_TEXT = 200
_MOST_WORDS = 16
_MOST_PROCESSES = 64
_FRAME = re.compile(r"\((?P<file>[^\n]*):(?P<line>\d{1,9})\)$")
"""The end of `function (file:line)`, as py-spy prints it."""

_Stamp = tuple[int, int, int]
_UNREAD: _Stamp = (0, 0, 0)


class Sources:
    """Gives each line once."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int]] = set()
        self._stamps: dict[str, _Stamp | None] = {}
        """How a file was when it was first read; None for what is no source of the job."""
        self._homes: dict[int, tuple[str, frozenset[str]]] = {}

    def meet(self, pid: int) -> None:
        """Note where a process stands and what it was started with, while it lives."""
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - no Path for a glance
            with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
                words = file.read(64 * 1024).split(b"\0")[1:_MOST_WORDS]
        except OSError:  # it has ended, or is not ours to look at
            return
        scripts = (os.path.join(folder, os.fsdecode(word)) for word in words if word[:1] != b"-")  # noqa: PTH118
        self._homes.pop(pid, None)
        self._homes[pid] = folder, frozenset(map(os.path.realpath, scripts))
        if len(self._homes) > _MOST_PROCESSES:
            del self._homes[next(iter(self._homes))]

    def read(self, samples: list[StackSample]) -> Iterator[SourceLine]:
        """The lines in these stacks that were not told yet."""
        wanted: dict[tuple[int, str], set[int]] = {}
        for sample in samples:
            for frame in sample.frames:
                found = _FRAME.search(frame)
                place = (found["file"], int(found["line"])) if found else ("", 0)
                if place[1] and place not in self._told and len(self._told) < MOST_LINES:
                    self._told.add(place)
                    wanted.setdefault((sample.pid, place[0]), set()).add(place[1])
        for (pid, file), lines in wanted.items():
            texts = self._read_file(file, pid)
            for line in sorted(lines):
                text = texts[line - 1].strip() if line <= len(texts) else b""
                if text:
                    shown = redact_code(text.decode("utf-8", "replace"))
                    yield SourceLine(file, line, shown[:MOST_TEXT])

    def _read_file(self, file: str, pid: int) -> list[bytes]:
        folder, scripts = self._homes.get(pid, ("", frozenset()))
        if not folder and file[:1] != "/":
            return []
        path = os.path.realpath(os.path.join(folder, file))  # noqa: PTH118
        is_source = file.endswith(".py") and path.endswith(".py")
        if not (is_source or path in scripts) or self._stamps.get(path, _UNREAD) is None:
            return []
        stamp, content = _read(path)
        if self._stamps.setdefault(path, stamp) != stamp:
            return []  # edited since: its lines are no longer those that run
        return content.splitlines()


def _read(path: str) -> tuple[_Stamp | None, bytes]:
    """A source file and how to tell it again; None if it is none."""
    try:
        descriptor = open_below(*os.path.split(path))
    except OSError:
        return None, b""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_size > MOST_FILE_BYTES:
            return None, b""
        content = file.read(MOST_FILE_BYTES)
    if b"\0" in content:
        return None, b""
    return (status.st_ino, status.st_mtime_ns, status.st_size), content
