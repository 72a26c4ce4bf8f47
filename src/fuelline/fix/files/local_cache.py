"""Keeps copies of files from slow mounts in a local folder, within a budget, for all processes.

A copy is named after the path, size, modification and change time of its source, so that a changed
source cannot meet an old copy. The source is asked for these at every opening. A copy appears under
its name by `rename`, after the source was seen unchanged by the reading: there are no torn ones,
whoever is killed when. Deleting a copy hurts no reader that has it open. Nothing here raises into
the job: what cannot be cached is read from where it is. Standard library only.

    DIR/objects/3f/3f9c...-16384-17...  copies     DIR/drafts/PID-NUMBER  being made
    DIR/ledger                          bytes in use, changed under a lock
    DIR/turns                           locks, so that of several processes one fetches a file

The folder was found to be ours alone before the job began. A copy is believed only if it is a
regular file of ours, and only files of ours with such names are deleted, so that a folder that was
put in its place later does no harm.
"""
# ruff: noqa: PTH103, PTH104, PTH108, PTH120 - a guest loads as little as it can; no pathlib

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import stat
import struct
import time
from hashlib import blake2b
from time import sleep  # noqa: TID251 - for some milliseconds, while another process counts
from typing import TYPE_CHECKING

from fuelline.schema.files import enter_below, is_own, is_own_file, is_too_long
from fuelline.schema.run.run_folder import COPIED, HITS, PASSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.fix.files.shards import Child

__all__ = ["Ledger", "LocalCache", "make_room"]

RACY_S = 2.0
"""A file changed within these seconds is not cached: some file systems count time in ticks, and a
second change in the same tick would not show."""
MOST_SHARE = 0.25
"""Of the budget: a larger file would push out too many others."""
MOST_BYTES = 256 << 20
"""Larger files are mostly read in parts; copying all of one first would make its reader wait."""
TOUCH_S = 60.0
"""A copy's time of last use is only that exact; it saves most hits a system call."""
RETRY_S = 30.0
"""After a failure to write, or when nothing can make room, for this long nothing new is cached."""
KEPT_SHARE = 0.9
"""Room is made until no more than this of the budget is in use: not for every single file."""
LOCK_TRIES, LOCK_PAUSE_S = 100, 0.005
"""Half a second: rather than wait for a holder that was stopped, a file is not cached."""
LEDGER_BYTES = 20
LONGEST_TURN_S, FIRST_PAUSE_S = 10.0, 0.0005
"""For a file that another process fetches; after that, which is that it was stopped or its mount is
slower than anything that a cache is for, the source is read."""
OBJECT = re.compile(r"[0-9a-f]{32}-\d+--?\d+--?\d+")
"""A copy's name: path, size, modification and change time, which may be before 1970."""
_OBJECT_FOLDER = re.compile("[0-9a-f]{2}")
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CHUNK = 1 << 20


def _count_nothing(_what: int) -> None:
    """Nobody wants to know."""


class LocalCache:
    """A server of paths below slow mounts."""

    def __init__(
        self, folder: str, budget_bytes: int, roots: list[str], run_began_ns: int = 0
    ) -> None:
        self.roots = roots
        self._objects = f"{folder}/objects"
        self._drafts = f"{folder}/drafts"
        self._ledger = folder, "ledger"
        self._turns = f"{folder}/turns"
        self._budget = budget_bytes
        self._most_bytes = min(MOST_BYTES, int(budget_bytes * MOST_SHARE))
        self._run_began_ns = run_began_ns
        self._numbers = itertools.count()
        self._idle_until = 0.0
        self.tally: Callable[[int], object] = _count_nothing
        """Told of each file, as HITS, COPIED or PASSED."""

    def read(self, path: str) -> bytes | None:
        """A copy is a file like any other."""
        return None

    def status(self, path: str) -> os.stat_result | None:
        """The mount's own answer counts, always."""
        return None

    def list(self, path: str) -> list[Child] | None:
        """As above."""
        return None

    def open(self, path: str) -> int | None:
        """A descriptor of a copy that is as good as the source; None: read the source."""
        try:
            status = _stat(path)
            if not stat.S_ISREG(status.st_mode) or not status.st_size:
                return None
            if status.st_size > self._most_bytes:
                self.tally(PASSED)
                return None
            name = self._name(path, status)
            descriptor, came = self._find(name, status.st_size), HITS
            if descriptor is None and self._may_write(status):
                descriptor, came = self._fetch_once(path, status, name)
        except OSError:
            return None  # the original will say what is wrong, if anything is
        self.tally(PASSED if descriptor is None else came)
        return descriptor

    def _name(self, path: str, status: os.stat_result) -> str:
        digest = blake2b(os.fsencode(path), digest_size=16).hexdigest()
        version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"
        return f"{self._objects}/{digest[:2]}/{digest}-{version}"

    def _find(self, name: str, size_bytes: int) -> int | None:
        try:
            descriptor = _open(name, _READ)
        except FileNotFoundError:
            return None
        held = os.fstat(descriptor)
        is_ours = is_own_file(descriptor)
        is_whole = is_ours and held.st_size == size_bytes
        try:
            if is_ours and not is_whole:
                os.unlink(name)  # a power cut left less than was written
            elif is_whole and time.time_ns() - held.st_mtime_ns > TOUCH_S * 1e9:
                os.utime(descriptor)
        except OSError:
            pass  # a read-only cache can still be read, but not be tidied
        if is_whole:
            return descriptor
        os.close(descriptor)
        return None

    def _may_write(self, status: os.stat_result) -> bool:
        if is_too_long(status.st_size):
            return False
        age_s = time.time_ns() / 1e9 - max(status.st_mtime, status.st_ctime)
        return age_s > RACY_S and time.monotonic() >= self._idle_until

    def _fetch_once(self, path: str, status: os.stat_result, name: str) -> tuple[int | None, int]:
        """Of all processes of the host that open a file at the same time, one fetches it."""
        with _FetchLock(self._turns, name) as turn:
            if turn.has_waited:
                descriptor = self._find(name, status.st_size)
                if descriptor is not None or not turn.is_ours:
                    return descriptor, HITS
            return self._fetch(path, status, name), COPIED

    def _fetch(self, path: str, status: os.stat_result, name: str) -> int | None:
        """Copy the source and open the copy; None if that did not come off."""
        draft = f"{self._drafts}/{os.getpid()}-{next(self._numbers)}"
        is_counted = False
        try:
            is_counted = self._reserve(status.st_size)
            if not is_counted:
                return None
            if not self._copy(path, status, draft):
                self._give_up(draft, status.st_size)
                return None
            descriptor = _open(draft, _READ)
            os.makedirs(os.path.dirname(name), mode=0o700, exist_ok=True)
            os.rename(draft, name)
        except OSError:
            self._rest()
            self._give_up(draft, status.st_size if is_counted else 0)
            return None
        return descriptor

    def _copy(self, path: str, status: os.stat_result, draft: str) -> bool:
        """True if all of it was copied, and the source did not change meanwhile."""
        source = _open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            target = _open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                copied = _copy_all(source, target)
            finally:
                os.close(target)
            is_unchanged = self._is_unchanged(source, status)
        finally:
            os.close(source)
        return copied == status.st_size and is_unchanged

    @staticmethod
    def _is_unchanged(source: int, status: os.stat_result) -> bool:
        return _version(os.fstat(source)) == _version(status)

    def _give_up(self, draft: str, size_bytes: int) -> None:
        try:
            os.unlink(draft)
        except OSError:
            pass  # it was never made
        try:
            self._count(-size_bytes)
        except OSError:
            pass  # the next one who makes room counts again

    def _reserve(self, size_bytes: int) -> bool:
        """Take a part of the budget; makes room if need be. False if there is none to be made."""
        if self._count(size_bytes) <= self._budget:
            return True
        with Ledger(*self._ledger) as ledger:
            used = make_room(
                self._objects, int(self._budget * KEPT_SHARE) - size_bytes, self._run_began_ns
            )
            is_enough = used + size_bytes <= self._budget
            ledger.write(used + size_bytes if is_enough else used)
        if not is_enough:
            self._rest()
        return is_enough

    def _rest(self) -> None:
        self._idle_until = time.monotonic() + RETRY_S

    def _count(self, size_bytes: int) -> int:
        """Change what is in use, and say what it is then."""
        with Ledger(*self._ledger) as ledger:
            used = max(0, ledger.read() + size_bytes)
            ledger.write(used)
        return used


def make_room(objects: str, most_bytes: int, before_ns: int) -> int:
    """Delete what was not used since `before_ns`, the oldest first, down to `most_bytes`.

    What this run has used stays: in a training that reads everything once per epoch, whatever was
    read longest ago is what is needed next, so replacing it would leave no hit at all (CoorDL, VLDB
    2021, section 4.1). Returns the bytes that are left.
    """
    found = sorted(_list_objects(objects))
    used = sum(size_bytes for _, size_bytes, _ in found)
    for used_ns, size_bytes, path in found:
        if used <= most_bytes or used_ns >= before_ns:
            break
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        used -= size_bytes
    return used


def _list_objects(objects: str) -> list[tuple[int, int, str]]:
    """Of our own files those with the name of a copy: anything else is not ours to count."""
    found = []
    for folder in _scandir(objects):
        if not (_OBJECT_FOLDER.fullmatch(folder.name) and folder.is_dir(follow_symlinks=False)):
            continue
        for entry in _scandir(folder.path):
            if OBJECT.fullmatch(entry.name) is None:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode) and is_own(status):
                found.append((status.st_mtime_ns, status.st_size, entry.path))
    return found


class Ledger:
    """Bytes in use; held by one process and thread at a time, and a killed holder lets go of it."""

    def __init__(self, folder: str, name: str = "ledger") -> None:
        self._folder = folder
        *self._between, self._name = name.split("/")

    def __enter__(self) -> Ledger:  # noqa: PYI034 - typing.Self is of 3.11
        # Opened again each time: a descriptor that forked children share would share its lock.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with enter_below(self._folder, self._between) as folder:
            self._descriptor = _open(self._name, flags, 0o600, dir_fd=folder)
        is_ours = is_own_file(self._descriptor) and os.fstat(self._descriptor).st_nlink == 1
        for _ in range(LOCK_TRIES if is_ours else 0):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # noqa: PERF203 - each try has its own answer
                sleep(LOCK_PAUSE_S)
            else:
                return self
        os.close(self._descriptor)
        raise TimeoutError("the ledger is held by another process, or it is not ours")

    def read(self) -> int:
        """0 for a ledger that is new or damaged."""
        text = os.pread(self._descriptor, LEDGER_BYTES, 0)
        return int(text) if text.strip().isdigit() else 0

    def write(self, used: int) -> None:
        """Fixed width, so that there is nothing to cut off."""
        text = b"%0*d" % (LEDGER_BYTES, used)
        if is_too_long(len(text)) or os.pwrite(self._descriptor, text, 0) != len(text):
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    def __exit__(self, *_: object) -> None:
        # A child that another thread forked meanwhile has the descriptor, too: closing ours would
        # not let go of the lock.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


class _FetchLock:
    """The right to fetch one file: a byte of a lock file, which a killed holder lets go of."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._place = int.from_bytes(blake2b(os.fsencode(name), digest_size=7).digest(), "big")
        self.has_waited = self.is_ours = False

    def __enter__(self) -> _FetchLock:  # noqa: PYI034 - typing.Self is of 3.11
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = _open(self._path, flags, 0o600)
        until_s, pause_s = time.monotonic() + LONGEST_TURN_S, FIRST_PAUSE_S
        while not self._take():
            self.has_waited = True
            if time.monotonic() > until_s:
                return self
            sleep(pause_s)
            pause_s = min(2 * pause_s, LOCK_PAUSE_S)
        self.is_ours = True
        return self

    def _take(self) -> bool:
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, self._pack(fcntl.F_WRLCK))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _pack(self, kind: int) -> bytes:
        """`struct flock`: type, from where, start, length, and a number of a process, 0 here."""
        return struct.pack("hhqqi4x", kind, os.SEEK_SET, self._place, 1, 0)

    def __exit__(self, *_: object) -> None:
        # As with the ledger: a child that was forked meanwhile has the descriptor, too.
        if self.is_ours:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, self._pack(fcntl.F_UNLCK))
        os.close(self._descriptor)


def _copy_all(source: int, target: int) -> int:
    copied = 0
    while chunk := os.read(source, _CHUNK):
        while chunk:
            written = os.write(target, chunk)
            copied += written
            chunk = chunk[written:]
    return copied


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


# The originals, from before the layer above was put in place: the cache must not serve itself.
_open, _stat, _scandir = os.open, os.stat, os.scandir
