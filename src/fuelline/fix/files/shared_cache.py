"""A cache that other users write to as well: nothing in it is believed for its place or its name.

A copy counts only if a mark of ours vouches for it: a keyed hash of its name and content, made when
this user last read the source itself, with a key that no other user can read. The hash is taken at
every opening, of the bytes in memory that the job then gets, so that whoever changes, cuts short or
replaces a copy can make it slower and never wrong. A copy that somebody else made is compared with
the source once. No link is followed, below the folder, on any way.

    DIR/objects/3f/3f9c...-16384-17...  copies of all users, each deleted by its owner only
    DIR/UID/marks/3f/3f9c...            our marks     DIR/UID/drafts, DIR/UID/ledger  as in our own

A hit on 100 kB costs 0.16 ms more than in our own cache (docs/cache.md). Standard library
only.
"""
# ruff: noqa: PTH119, PTH120 - a guest loads as little as it can; no pathlib

from __future__ import annotations

import os
import stat
import time
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING

from fuelline.fix.files.held_file import hold_in_memory
from fuelline.fix.files.local_cache import OBJECT, TOUCH_S, LocalCache
from fuelline.schema.files import enter_below, is_own, open_below, read_below, write_all
from fuelline.schema.run.run_folder import COPIED, HITS, PASSED

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SharedCache", "forget_marks", "make_shelf"]

KEY_BYTES = 32
MARK_BYTES = 32
HELD_BYTES = 4 << 20
"""Smaller files need no descriptor to be read from memory."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_IN_THE_WAY = (PermissionError, IsADirectoryError, NotADirectoryError)


class SharedCache(LocalCache):
    """A server of paths below slow mounts."""

    def __init__(
        self,
        folder: str,
        budget_bytes: int,
        roots: list[str],
        run_began_ns: int = 0,
        *,
        key_file: str,
    ) -> None:
        super().__init__(folder, budget_bytes, roots, run_began_ns)
        self._folder = folder
        self._own = str(os.geteuid())
        self._ledger = folder, f"{self._own}/ledger"
        self._key = read_below(os.path.dirname(key_file), os.path.basename(key_file), KEY_BYTES)
        self._in_the_way: set[str] = set()
        self._is_open: dict[str, bool] = {}

    def read(self, path: str) -> bytes | None:
        """The content of a small file."""
        return self._content(path, HELD_BYTES)

    def open(self, path: str) -> int | None:
        """The content as a file in memory, that nobody else can change."""
        content = self._content(path, self._most_bytes)
        if content is None:
            return None
        try:
            return hold_in_memory(content)
        except (OSError, MemoryError):
            return None

    def _content(self, path: str, most_bytes: int) -> bytes | None:
        """What the source has; None: read the source."""
        try:
            status = _stat(path)
            if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= most_bytes:
                return None
            name = os.path.basename(self._name(path, status))
            found = self._find_copy(name, status.st_size)
            if found is not None and self._is_vouched(name, found):
                self.tally(HITS)
                return found
            kept = None
            if name not in self._in_the_way and self._may_write(status):
                kept = self._keep(path, status, name, found)
        except (OSError, MemoryError):
            return None  # the original will say what is wrong, if anything is
        self.tally(PASSED if kept is None else COPIED)
        return kept

    def _find_copy(self, name: str, size_bytes: int) -> bytes | None:
        try:
            descriptor = open_below(self._folder, f"objects/{name[:2]}/{name}")
        except OSError:
            return None
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            self._touch(file.fileno())
            return _read_all(file.fileno(), size_bytes)

    @staticmethod
    def _touch(descriptor: int) -> None:
        """A copy of ours that is in use is not deleted to make room."""
        held = os.fstat(descriptor)
        is_due = time.time_ns() - held.st_mtime_ns > TOUCH_S * 1e9
        if is_due and is_own(held):
            os.utime(descriptor)

    def _is_vouched(self, name: str, content: bytes) -> bool:
        try:
            mark = read_below(self._folder, f"{self._own}/marks/{name[:2]}/{name}", MARK_BYTES)
        except OSError:
            return False
        return compare_digest(mark, self._mark(name, content))

    def _mark(self, name: str, content: bytes) -> bytes:
        digest = blake2b(os.fsencode(name) + b"\0", digest_size=MARK_BYTES, key=self._key)
        digest.update(content)
        return digest.digest()

    def _keep(
        self, path: str, status: os.stat_result, name: str, found: bytes | None
    ) -> bytes | None:
        """Read the source; copy it if nobody did, or did so wrongly; vouch for the copy."""
        content = self._read_source(path, status)
        if content is None:
            return None
        try:
            if found == content or self._place(name, content, self._rights(path, status)):
                self._vouch(name, content)
        except OSError:
            self._rest()
        return content

    def _read_source(self, path: str, status: os.stat_result) -> bytes | None:
        """All of it, if it did not change meanwhile."""
        source = _open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = _read_all(source, status.st_size)
            return content if self._is_unchanged(source, status) else None
        finally:
            os.close(source)

    def _place(self, name: str, content: bytes, rights: int) -> bool:
        """Put a copy under its name; False if there is no room, or another's file in its place."""
        if not self._reserve(len(content)):
            return False
        draft = f"{os.getpid()}-{next(self._numbers)}"
        with enter_below(self._folder, [self._own, "drafts"]) as drafts:
            try:
                _write_new(draft, content, rights, drafts)
                make_shelf(self._folder, name[:2])
                with enter_below(self._folder, ["objects", name[:2]]) as shelf:
                    os.rename(draft, name, src_dir_fd=drafts, dst_dir_fd=shelf)
            except OSError as refusal:
                self._give_up_below(draft, drafts, len(content))
                if not isinstance(refusal, _IN_THE_WAY):
                    raise
                self._in_the_way.add(name)
                return False
        return True

    def _give_up_below(self, draft: str, drafts: int, size_bytes: int) -> None:
        try:
            os.unlink(draft, dir_fd=drafts)
        except OSError:
            pass  # it was never made
        self._count(-size_bytes)

    def _vouch(self, name: str, content: bytes) -> None:
        with enter_below(self._folder, [self._own, "marks"]) as marks:
            try:
                os.mkdir(name[:2], 0o700, dir_fd=marks)
            except FileExistsError:
                pass
        with enter_below(self._folder, [self._own, "marks", name[:2]]) as shelf:
            descriptor = _open(name, _NEW | os.O_TRUNC, 0o600, dir_fd=shelf)
            try:
                write_all(descriptor, self._mark(name, content))
            finally:
                os.close(descriptor)

    def _rights(self, path: str, status: os.stat_result) -> int:
        """Of a copy: for everybody only if everybody can read the source where it is."""
        if not status.st_mode & stat.S_IROTH:
            return 0o600
        folder = os.path.dirname(os.path.realpath(path))
        known = self._is_open.get(folder)
        if known is None:
            known = all(_stat(above).st_mode & stat.S_IXOTH for above in _above(folder))
            self._is_open[folder] = known
        return 0o644 if known else 0o600


def make_shelf(folder: str, name: str) -> None:
    """A folder among the copies, with the rights of the folder around them, whatever the umask."""
    with enter_below(folder, ["objects"]) as objects:
        try:
            os.mkdir(name, 0o700, dir_fd=objects)
        except FileExistsError:
            return
        rights = stat.S_IMODE(os.fstat(objects).st_mode)
    with enter_below(folder, ["objects", name]) as shelf:
        if is_own(os.fstat(shelf)):
            os.fchmod(shelf, rights)


def forget_marks(folder: str) -> None:
    """Delete marks of ours whose copy is gone."""
    own = f"{os.geteuid()}/marks"
    with enter_below(folder, own.split("/")) as marks:
        shelves = os.listdir(marks)  # noqa: PTH208 - of a descriptor
    for shelf in shelves:
        try:
            with enter_below(folder, ["objects", shelf]) as copies:
                left = {*os.listdir(copies)}  # noqa: PTH208
        except OSError:
            left = set()
        with enter_below(folder, [*own.split("/"), shelf]) as marks:
            for name in os.listdir(marks):  # noqa: PTH208
                if name not in left and OBJECT.fullmatch(name):
                    os.unlink(name, dir_fd=marks)


def _above(folder: str) -> Iterator[str]:
    while True:
        yield folder
        if folder == "/":
            return
        folder = os.path.dirname(folder)


def _read_all(descriptor: int, size_bytes: int) -> bytes | None:
    """Exactly this many bytes; None if there are fewer or more."""
    parts, left = [], size_bytes + 1
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts) if left == 1 else None


def _write_new(name: str, content: bytes, rights: int, folder: int) -> None:
    descriptor = _open(name, _NEW | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        os.fchmod(descriptor, rights)
        write_all(descriptor, content)
    finally:
        os.close(descriptor)


# The originals, as in `local_cache`.
_open, _stat = os.open, os.stat
