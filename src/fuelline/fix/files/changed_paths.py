"""Paths that this process has changed: from then on the disk is asked for them, and nobody else.

Noted are files that were opened for writing, cut short, removed or renamed, by their absolute path.
A folder stands for all that is below it. Forked children start with what was noted before the fork.
There is no lock, since a child could inherit it taken. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ChangedPaths"]

MOST_NOTED = 10_000
"""Names in a folder, and folders: 2 MB. Where there are more, the folder around them is noted."""

_REFUSALS = frozenset(
    (
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EXDEV),
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EMFILE, errno.ENFILE),
    )
)
"""The kernel's refusals that leave everything as it was. Any other exception may come later: an
unknown encoding, once `open` has emptied the file; one of the job's own signal handlers."""


class ChangedPaths:
    """By folder, so that a listing can be corrected."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}
        self._changing: dict[object, str] = {}
        """Being changed at this moment, by any thread."""

    def has(self, path: str) -> bool:
        """Whether it, or a folder above it, was changed; 0.1 us a folder once anything was."""
        if self._changing:
            for changing in list(self._changing.values()):
                if path == changing or path.startswith(f"{changing}/"):
                    return True
        return self._is_noted(path)

    def _is_noted(self, path: str) -> bool:
        while path and self._names:
            folder, _, name = path.rpartition("/")
            if name in self._names.get(folder, ()):
                return True
            path = folder
        return False

    def find_names(self, folder: str) -> list[str]:
        """Names in a folder that were changed."""
        return list(self._names.get(folder, ()))

    @contextlib.contextmanager
    def noting(self, paths: list[str]) -> Iterator[None]:
        """Note paths while they are being changed, and afterwards unless that is refused.

        Before it is done, so that no other thread is given the old bytes after it.
        """
        tokens = {object(): path for path in paths}
        self._changing.update(tokens)
        is_changed = True
        try:
            yield
        except OSError as error:
            is_changed = error.errno not in _REFUSALS
            raise
        finally:
            for token, path in tokens.items():
                if is_changed and not self._is_noted(path):
                    self._add(path)
                del self._changing[token]

    def _add(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        names = self._names.setdefault(folder, set())
        names.add(name)
        if len(names) > MOST_NOTED and folder:
            self._add(folder)
            self._names.pop(folder, None)
        elif len(self._names) > MOST_NOTED:
            self._join_deepest()

    def _join_deepest(self) -> None:
        """Of the folders furthest down, each is noted as a whole in the one above it."""
        folders = list(self._names)
        depth = max(folder.count("/") for folder in folders)
        for folder in folders:
            if folder.count("/") == depth:
                above, _, name = folder.rpartition("/")
                self._names.setdefault(above, set()).add(name)
                self._names.pop(folder, None)
