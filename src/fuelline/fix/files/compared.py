"""Which large files were compared with their checksum as a whole, and are as they were then.

To read 100 GB takes minutes, so what one process compared no other should compare again. The
record of it is the name of an empty file in a folder of the user's own: a hash of the checksum, of
the state that the compared file was in, and of this boot of the machine. A name cannot be half
written, and a garbled one is no file's; a file that was touched, replaced or copied has another
state. Where a file system may not show that a file changed, a record is for one run only.

    FUELLINE_HOME/compared/2f6c...e1   160 bits in hex

Runs in the job: standard library only, and whatever fails here means "not recorded".
"""

from __future__ import annotations

import contextlib
import os
import stat
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from fuelline.schema.files import (
    OWNER_FILE,
    enter_below,
    is_ours_alone,
    make_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ComparedFiles", "FileState", "find_state"]

RECORDED_BYTES = 256 << 20
"""Of files above this size it is recorded; to compare a smaller one takes 0.2 s at most, and each
process of a job does so."""
SETTLED_NS = 2_000_000_000
"""The times of file systems have steps of up to 2 s (FAT; ext3 has 1 s, others 10 ms): a file that
was changed less than this before it was compared could be changed again and have the same times."""
NAME_BYTES = 20
BOOT_ID = "/proc/sys/kernel/random", "boot_id"
TELLING_TYPES = frozenset((
    "bcachefs", "beegfs", "btrfs", "ceph", "ext2", "ext3", "ext4", "f2fs", "gpfs", "lustre", "nfs",
    "nfs4", "overlay", "tmpfs", "virtiofs", "xfs", "zfs",
))  # fmt: skip
"""File systems with a time of the last change (ctime) that no program can set. FAT has none, and
FUSE, 9p and SMB may make it up from the time that `rsync -t --inplace` sets back."""


class FileState(NamedTuple):
    """A file as it was found; written to, replaced, linked or renamed, it has another state."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    version: int
    """Of the pack: which kind of checksum it is."""
    digest: bytes
    """The checksum that its content should have."""


def find_state(descriptor: int, version: int, digest: bytes) -> FileState:
    """Of an open file, so that it is the file which is then read and no other of its name."""
    found = os.fstat(descriptor)
    times = found.st_mtime_ns, found.st_ctime_ns
    return FileState(found.st_dev, found.st_ino, found.st_size, *times, version, digest)


class ComparedFiles:
    """What this process compared, and what others have recorded in a folder."""

    def __init__(
        self,
        folder: str | None = None,
        run: str = "",
        *,
        makes_folder: bool = False,
        believes: bool = True,
    ) -> None:
        self.folder = folder
        self.run = run
        """A word of this run's own; none if there is no job."""
        self.recorded_bytes = RECORDED_BYTES
        self.problem: str | None = None
        """Why the last record could not be written."""
        self._makes_folder = makes_folder
        self._believes = believes
        self._known: set[FileState] = set()

    def has(self, state: FileState, descriptor: int) -> bool:
        """Whether this file was compared as it is now, and found to be right; 0.1 ms at first."""
        if state not in self._known:
            if not self._believes or not self._is_recorded(state, descriptor):
                return False
            self._known.add(state)
        return True

    def add(self, state: FileState, descriptor: int, began_ns: int) -> None:
        """A file is right that had this state before and after it was read; `time_ns` before."""
        if abs(began_ns - state.ctime_ns) < SETTLED_NS:
            return
        self._known.add(state)
        try:
            if state.size_bytes > self.recorded_bytes:
                self._record(self._name(state, descriptor))
        except OSError as refusal:
            self.problem = refusal.strerror or str(refusal)

    def forget(self, state: FileState, descriptor: int) -> None:
        """A file is wrong though its state was recorded: its disk lost what was written."""
        self._known.discard(state)
        try:
            with self._enter() as inner:
                os.unlink(self._name(state, descriptor), dir_fd=inner)
        except OSError:
            return  # it was not recorded

    def _is_recorded(self, state: FileState, descriptor: int) -> bool:
        if state.size_bytes <= self.recorded_bytes:
            return False
        try:
            with self._enter() as inner:
                name = self._name(state, descriptor)
                found = os.stat(name, dir_fd=inner, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and is_ours_alone(found)

    def _record(self, name: str) -> None:
        if self._makes_folder and self.folder is not None:
            make_folder(self.folder, is_new=False)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with self._enter() as inner:
            descriptor = os.open(name, flags, OWNER_FILE, dir_fd=inner)
        try:
            os.utime(descriptor)  # old ones are deleted
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _enter(self) -> Iterator[int]:
        """The folder, by a descriptor: in a job the names of files may be answered by a pack."""
        if self.folder is None:
            raise FileNotFoundError(2, "there is no store of runs to keep it in")
        above, _, last = self.folder.rpartition("/")
        with enter_below(above or "/", [last]) as inner:
            if not is_ours_alone(os.fstat(inner)):
                raise PermissionError(1, "others can write there", self.folder)
            yield inner

    def _name(self, state: FileState, descriptor: int) -> str:
        """Of the record; OSError if there can be none."""
        boot = _read_boot()
        tells_changes = _find_type(descriptor) in TELLING_TYPES
        if not tells_changes and not self.run:
            raise OSError(95, "its file system may not show that a file changed")
        run = "" if tells_changes else self.run
        return blake2b(repr((boot, run, *state)).encode(), digest_size=NAME_BYTES).hexdigest()


def _read_boot() -> bytes:
    try:
        boot = _read_system(*BOOT_ID).strip()
    except OSError:
        boot = b""
    if not boot:
        raise FileNotFoundError(2, "the kernel does not give its boot id", "/".join(BOOT_ID))
    return boot


def _find_type(descriptor: int) -> str:
    """The file system that an open file is on; "" if this process cannot see its mount.

    `mnt_id: 27` leads to `27 1 254:0 / /data rw,relatime shared:1 - ext4 /dev/vda rw`.
    """
    found = _read_system("/proc/self/fdinfo", str(descriptor)).partition(b"mnt_id:")[2].split()
    for line in _read_system("/proc/self", "mountinfo").splitlines():
        left, _, right = line.partition(b" - ")
        if found and left.split()[:1] == found[:1]:
            return os.fsdecode(right.partition(b" ")[0])
    return ""


def _read_system(folder: str, name: str) -> bytes:
    """A file of /proc, which has no size, and gives a page at a time."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)
