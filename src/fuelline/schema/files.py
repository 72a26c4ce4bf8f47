"""Files as strangers may have left them, and as we leave ours. Standard library only.

A run's folder, a cache or a pack may come from somebody else, or be where others can write. So
below a folder no link is followed, nothing but a regular file is read (a FIFO would hang, a device
never ends), and no more of it than was asked for. What we write appears whole or not at all, is
readable by its owner alone, and is drafted under a name that nobody could have put there before.

Only what lies *below* a folder is checked so: the path to the folder is the user's own word.
"""

import contextlib
import errno
import os
import resource
import stat
from collections.abc import Iterator
from typing import BinaryIO

__all__ = [
    "enter_below",
    "is_below",
    "is_ours_alone",
    "is_own",
    "is_own_file",
    "is_own_folder",
    "is_too_long",
    "list_below",
    "make_draft_folder",
    "make_folder",
    "open_below",
    "open_own",
    "read_below",
    "read_given",
    "refuse_holes",
    "refuse_holes_in",
    "remove_drafts",
    "write_all",
    "write_whole",
]

OWNER_FILE = 0o600
OWNER_FOLDER = 0o700
GIVEN_BYTES = 64 << 20
"""Of a table or a configuration: thousands of times what the largest ones have."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MOST_PIECES = 100_000
MOST_HOLES = 64 * 1024 * 1024
"""More than this is not written by anybody: a spool grows by half a megabyte at a time."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

Folder = str | os.PathLike[str]


def open_below(folder: Folder, name: str) -> int:
    """A descriptor of a regular file; `name` may have folders in it, and none of them is a link.

    Raises OSError with a reason to show: ELOOP for a link, EINVAL for what is no regular file.
    """
    *between, last = name.split("/")
    with enter_below(folder, between) as parent:
        try:
            descriptor = os.open(last, _READ, dir_fd=parent)
        except OSError as refusal:
            raise _explained(refusal, name) from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", name)


def read_below(folder: Folder, name: str, most_bytes: int) -> bytes:
    """The content of a regular file; EFBIG if there is more than `most_bytes` of it.

    A large file that is mostly holes is refused, too: it costs its sender nothing.
    """
    with os.fdopen(open_below(folder, name), "rb") as file:
        refuse_holes(file, name)
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > most_bytes:
            raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", name)
        return file.read(size_bytes)  # room for as much is taken at once


def refuse_holes(file: BinaryIO, name: str) -> None:
    """Raise EFBIG for a large file that is mostly holes; its place is left at the beginning."""
    refuse_holes_in(file.fileno(), name)
    file.seek(0)


def refuse_holes_in(descriptor: int, name: str) -> None:
    """The same for an open descriptor."""
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes > MOST_HOLES and size_bytes - _count_written(descriptor) > MOST_HOLES:
        raise OSError(errno.EFBIG, f"its {size_bytes} bytes are mostly holes", name)
    os.lseek(descriptor, 0, os.SEEK_SET)


def is_own(status: os.stat_result) -> bool:
    """Whether it belongs to us; others may be able to write to it anyway."""
    return status.st_uid == os.geteuid()


def is_ours_alone(status: os.stat_result) -> bool:
    """Whether it belongs to us and nobody else can write to it."""
    return is_own(status) and not status.st_mode & _OTHERS_WRITE


def is_own_file(descriptor: int) -> bool:
    """Whether an open file is a regular one of ours that nobody else can write."""
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and is_ours_alone(status)


def _count_written(descriptor: int) -> int:
    """Bytes of a file that are not holes, as far as the file system says; all if it does not."""
    written = at = 0
    try:
        for _ in range(_MOST_PIECES):
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
            written += at - start
    except OSError as refusal:
        if refusal.errno != errno.ENXIO:  # nothing but a hole follows
            return os.fstat(descriptor).st_size
    return written


def is_below(folder: Folder, name: str) -> bool:
    """Whether something has that name, be it a link that leads nowhere."""
    *between, last = name.split("/")
    try:
        with enter_below(folder, between) as parent:
            os.stat(last, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return True


def read_given(path: Folder, most_bytes: int = GIVEN_BYTES) -> bytes:
    """The same for a file that the user named: where its links lead to is the user's own choice."""
    return read_below(*os.path.split(os.path.realpath(path)), most_bytes)


def list_below(folder: Folder, name: str = "") -> list[str]:
    """The names in a folder below, sorted; links among them are for `open_below` to refuse."""
    with enter_below(folder, name.split("/") if name else []) as inner:
        return sorted(os.listdir(inner))  # noqa: PTH208 - of a descriptor


def is_own_folder(folder: Folder) -> bool:
    """Whether it is a folder of ours that nobody else can write; root's eyes see only root's."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and is_ours_alone(status)


def make_folder(folder: Folder, *, is_new: bool = True) -> None:
    """Make a folder, and those above it that are missing, for their owner alone.

    FileExistsError if it is there already and `is_new`.
    """
    above = os.path.dirname(os.path.abspath(folder))  # noqa: PTH100, PTH120 - no pathlib in guests
    if not os.path.isdir(above):  # noqa: PTH112
        make_folder(above, is_new=False)
    try:
        os.mkdir(folder, OWNER_FOLDER)  # noqa: PTH102
    except FileExistsError:
        if is_new or not os.path.isdir(folder):  # noqa: PTH112
            raise


def open_own(path: Folder, flags: int) -> int:
    """A descriptor to write to our own file, made for its owner alone; a link is refused."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, OWNER_FILE)


def is_too_long(size_bytes: int) -> bool:
    """Whether this process may not write so long a file (`ulimit -f`), in memory or elsewhere.

    Asked and not tried: the kernel ends a process that tries if it has SIGXFSZ as C programs do.
    """
    most_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return most_bytes != resource.RLIM_INFINITY and size_bytes > most_bytes


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write a new file's content, all of it; OSError if there is no room for the whole."""
    left = memoryview(content)
    if is_too_long(len(left)):
        raise OSError(errno.EFBIG, "it is longer than `ulimit -f` allows")
    while left:
        written = os.write(descriptor, left)
        if not written:
            raise OSError(errno.EIO, "nothing more can be written")
        left = left[written:]


@contextlib.contextmanager
def write_whole(path: Folder, mode: int = OWNER_FILE) -> Iterator[BinaryIO]:
    """A stream to write to; the file appears under its name when all went well.

    A link of that name is replaced and not written through.
    """
    folder, name = os.path.split(os.fspath(path))
    draft = os.path.join(folder, f".{name[:100]}.{os.urandom(6).hex()}")  # noqa: PTH118 - no pathlib
    try:
        with os.fdopen(os.open(draft, _DRAFT, mode), "wb") as file:
            yield file
        os.replace(draft, path)  # noqa: PTH105 - no pathlib in guests
    except BaseException:
        try:
            os.unlink(draft)  # noqa: PTH108 - no pathlib in guests
        except OSError:
            pass  # it was never made
        raise


def make_draft_folder(folder: Folder, name: str) -> str:
    """A new folder of our own for what becomes a folder of that name; it says which process's."""
    make_folder(folder, is_new=False)
    draft = os.path.join(folder, f".{name[:100]}.{os.getpid()}.{os.urandom(6).hex()}")  # noqa: PTH118
    os.mkdir(draft, OWNER_FOLDER)  # noqa: PTH102
    return draft


def remove_drafts(folder: Folder, pid: int) -> None:
    """Take away the draft folders of a process that was killed, by the exact pattern of theirs."""
    import re  # noqa: PLC0415 - guests of a job need not load these
    import shutil  # noqa: PLC0415

    pattern = re.compile(rf"\..+\.{pid}\.[0-9a-f]{{12}}", re.DOTALL)
    try:
        names = list_below(folder)
    except OSError:
        return
    for name in names:
        draft = os.path.join(folder, name)  # noqa: PTH118
        if pattern.fullmatch(name) and is_own_folder(draft):
            shutil.rmtree(draft, ignore_errors=True)


@contextlib.contextmanager
def enter_below(folder: Folder, between: list[str]) -> Iterator[int]:
    """A descriptor of a folder below a folder, reached without following a link."""
    inner = os.open(folder, _FOLDER)
    try:
        for name in between:
            if name in ("", ".", ".."):
                raise OSError(errno.EINVAL, "the name leads out of its folder", "/".join(between))
            outer = inner
            try:
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=outer)
            except OSError as refusal:
                raise _explained(refusal, name) from None
            os.close(outer)
        yield inner
    finally:
        os.close(inner)


def _explained(refusal: OSError, name: str) -> OSError:
    """What the kernel says of a link, in words that help; a socket is ENXIO to it."""
    words = {errno.ELOOP: "it is a link", errno.ENXIO: "it is not a regular file"}
    return OSError(refusal.errno, words.get(refusal.errno or 0, refusal.strerror), name)
