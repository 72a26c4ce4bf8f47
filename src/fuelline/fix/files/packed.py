"""A pack as a server of paths: the root it was packed from, and what lay below.

Where a pack turns out to be damaged while the job runs, the file is read from where it was packed
from, and the first such file is named on standard error. If that is gone as well the job gets an
error, and never other bytes than were packed.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any, TypeVar

from fuelline.fix.files.shards import Child, Entry, Pack
from fuelline.fix.messages import say
from fuelline.schema.run.run_folder import PACKED
from fuelline.schema.shards import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fuelline.fix.files.compared import ComparedFiles

__all__ = ["PackServer", "PackedListing"]

_Answer = TypeVar("_Answer")


class PackServer:
    """Answers for the packed folder; names that it does not know are left to the file system."""

    def __init__(self, folder: str, compared: ComparedFiles | None = None) -> None:
        self._pack = Pack(folder, compared)
        self.root = self._pack.root
        source = _ask_source(self.root)
        if source is not None:
            self._pack.device = source.st_dev
        self._is_reported = False
        self.tally: Callable[[int], object] | None = None
        """Told of each file that was read from the pack, as PACKED."""

    def _find(self, path: str) -> Entry | None:
        return self._ask(path, lambda: self._pack.find(path[len(self.root) + 1 :]))

    def _ask(self, path: str, ask: Callable[[], _Answer | None]) -> _Answer | None:
        """What the pack says; None if it cannot, and the source is there to be asked."""
        try:
            return ask()
        except (OSError, MemoryError) as problem:
            no_memory = os.strerror(errno.ENOMEM)
            why = problem.strerror if isinstance(problem, OSError) else no_memory
            self._report(path, why)
            if _is_there(path):
                return None
            reason = f"the pack {self._pack.folder} fails ({why}); the original is gone"
            raise OSError(errno.EIO, reason, path) from None

    def _report(self, path: str, why: str | None) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        say(
            f"the pack {self._pack.folder!a} fails at {path!a} ({why}). "
            "This file, and others like it, are read from the original folder. `fuelline pack "
            "--check` lists them."
        )

    def _counted(self, answer: _Answer | None) -> _Answer | None:
        if answer is not None and self.tally is not None:
            self.tally(PACKED)
        return answer

    def open(self, path: str) -> int | None:
        """The content of a packed file."""
        entry = self._find(path)
        if entry is None:
            return None
        if not stat.S_ISDIR(entry.mode):
            return self._counted(self._ask(path, lambda: self._pack.open(entry)))
        if _is_there(path):
            return None  # a real folder can be opened, to be synchronised or walked through
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)

    def read(self, path: str) -> bytes | None:
        """The same for a small file, without a descriptor."""
        entry = self._find(path)
        if entry is None or stat.S_ISDIR(entry.mode) or entry.size >= LARGE_BYTES:
            return None
        return self._counted(self._ask(path, lambda: self._pack.read(entry)))

    def status(self, path: str) -> os.stat_result | None:
        """As it was when it was packed.

        A folder that is there has its own, which is also that of a descriptor: `os.fwalk` and
        `shutil.rmtree` compare the two, and leave a folder alone that seems to be another.
        """
        entry = self._find(path)
        if entry is None:
            return None
        source = _ask_source(path) if stat.S_ISDIR(entry.mode) else None
        return self._pack.status(entry) if source is None else source

    def list(self, path: str) -> list[Child] | None:
        """The names in a packed folder."""
        entry = self._find(path)
        if entry is None:
            return None
        if not stat.S_ISDIR(entry.mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return self._ask(path, lambda: self._pack.list(path[len(self.root) + 1 :]))


class PackedListing:
    """What `os.scandir` gives for a packed folder."""

    def __init__(self, path: Any, children: list[Child]) -> None:
        top = "." if path is None else os.fspath(path)
        self._left: Iterator[PackedDirEntry] = iter(
            [PackedDirEntry(top, child) for child in children]
        )

    def __iter__(self) -> PackedListing:
        return self

    def __next__(self) -> PackedDirEntry:
        return next(self._left)

    def __enter__(self) -> PackedListing:  # noqa: PYI034 - typing.Self is of 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """As the original's; there is nothing to free."""
        self._left = iter(())


class PackedDirEntry:
    """One entry of it, as `os.DirEntry`."""

    __slots__ = ("_status", "name", "path")

    def __init__(self, top: Any, child: Child) -> None:
        is_bytes = isinstance(top, bytes)
        self.name = os.fsencode(child.name) if is_bytes else child.name
        self.path = os.path.join(top, self.name)  # noqa: PTH118 - a guest loads no pathlib
        self._status = child.status

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        """A number that is its own within the pack."""
        return self._status.st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Links were followed when the set was packed."""
        return stat.S_ISDIR(self._status.st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """As above."""
        return stat.S_ISREG(self._status.st_mode)

    def is_symlink(self) -> bool:
        """Never: what a link pointed to stands in its place."""
        return False

    def is_junction(self) -> bool:
        """Of another system."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Its status."""
        return self._status


def _ask_source(path: str) -> os.stat_result | None:
    try:
        return _stat(path)
    except OSError:
        return None  # it may be gone


def _is_there(path: str) -> bool:
    try:
        _lstat(path)
    except OSError:
        return False
    return True


# The originals, from before the layer above was put in place: they do not answer from the pack.
_lstat, _stat = os.lstat, os.stat
