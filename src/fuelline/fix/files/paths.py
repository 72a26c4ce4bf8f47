"""One layer between the job and its files: paths that a pack or the cache serves are answered here.

Replaced: `open` and `io.open`, `os.open`, and for packs `os.stat`, `os.lstat`, `os.access`,
`os.scandir` and `os.listdir`, on which `os.path`, `os.walk`, `glob`, `pathlib`, Pillow and numpy
build. `os.open` gives real descriptors, and so do file objects when they are asked for one.
Functions that change files do what they did, those of libraries that write in C as well
(`C_WRITERS`); what they changed is not served any more.
Whatever is not served, or not asked for by a plain path, goes on to the original with the same
arguments, and errors are those of the original. Nothing is kept per thread; forked children share
only what may be shared. Standard library only.
"""
# ruff: noqa: PTH118 - a guest loads as little as it can; no pathlib

from __future__ import annotations

import builtins
import io
import json
import os
import stat
import sys
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Protocol

from fuelline.fix.files.changed_paths import ChangedPaths
from fuelline.fix.files.held_file import SIMPLE_MODES, open_held
from fuelline.fix.files.served_counts import ServedCounts

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from fuelline.fix.files.local_cache import LocalCache
    from fuelline.fix.files.shards import Child

__all__ = ["install"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NOT_SERVED = _WRITING | os.O_DIRECTORY | os.O_PATH | os.O_DIRECT
_MODE_LETTERS, _WRITING_LETTERS = frozenset("rwax+bt"), frozenset("wax+")


class PathServer(Protocol):
    """Who has files: a pack or the cache."""

    def open(self, path: str) -> int | None:
        """A descriptor for reading this absolute path; None if it is not served."""

    def read(self, path: str) -> bytes | None:
        """Its content, if that is quicker than a descriptor; None otherwise."""

    def status(self, path: str) -> os.stat_result | None:
        """Its status; None if the original is to be asked."""

    def list(self, path: str) -> list[Child] | None:
        """The names in this folder; None if the original is to be asked."""


C_READERS = {"cv2": "imread"}
"""Functions that open a path in C, by module: they get `/proc/self/fd/N` instead."""
C_WRITERS = {
    "cv2": ("imwrite", 0, "filename"),
    "safetensors": ("serialize_file", 1, "filename"),
    "soundfile": ("write", 0, "file"),
    "torch.jit": ("save", 1, "f"),
    "torch.serialization": ("save", 1, "f"),
    "torchvision.io.image": ("write_file", 0, "filename"),
}
"""Functions that write to a path in C, by the module from which others import them (`torch.save` is
that of `torch.serialization`): which argument the path is, by position and by name."""


CHANGING: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("remove", "rmdir", "truncate", "unlink"), (("path", "dir_fd"),)),
    **dict.fromkeys(("rename", "replace"), (("src", "src_dir_fd"), ("dst", "dst_dir_fd"))),
}
"""Functions of `os` that change what a path leads to: the names of that argument and of the folder
that it is relative to."""


def install(plan: str, watch: Callable[[str, Callable[[], None]], None], run_dir: str) -> None:
    """Serve what the plan says: {"packed": [folder, ...], "compared": {...}, "cache": {...}}.

    `watch` runs an action once a module has been imported; what is served is counted in `run_dir`.
    """
    wanted = json.loads(plan)
    tally = ServedCounts(run_dir).add
    servers: list[tuple[str, PathServer]] = []
    if wanted.get("packed"):
        from fuelline.fix.files.compared import ComparedFiles  # noqa: PLC0415 - if needed
        from fuelline.fix.files.packed import PackServer  # noqa: PLC0415 - as above

        compared = ComparedFiles(**wanted.get("compared", {}))
        packs = [PackServer(folder, compared) for folder in wanted["packed"]]
        for pack in packs:
            pack.tally = tally
        servers += [(pack.root, pack) for pack in packs]
    has_pack = bool(servers)
    if wanted.get("cache"):
        cache = _open_cache(wanted["cache"])
        cache.tally = tally
        servers += [(root, cache) for root in cache.roots]
    layer = PathLayer(servers)
    layer.replace_opening()
    layer.replace_changing()
    if has_pack:
        layer.replace_asking()
    if sys.version_info < (3, 11):
        watch("pathlib", _renew_accessor)
    for module in {*C_READERS, *C_WRITERS}:
        watch(module, partial(layer.replace_in_c, module))


def _open_cache(wanted: dict[str, Any]) -> LocalCache:
    if "key_file" in wanted:
        from fuelline.fix.files.shared_cache import SharedCache  # noqa: PLC0415 - if needed

        return SharedCache(**wanted)
    from fuelline.fix.files.local_cache import LocalCache  # noqa: PLC0415 - as above

    return LocalCache(**wanted)


class PathLayer:
    """The replaced functions."""

    def __init__(self, servers: list[tuple[str, PathServer]]) -> None:
        self._servers = servers
        self._prefixes = tuple(root.rstrip("/") + "/" for root, _ in servers)
        self._roots = frozenset(root for root, _ in servers)
        self._changed = ChangedPaths()

    def _find(self, path: Any) -> tuple[str, PathServer] | None:
        """The absolute path and who serves it; None if the original is to be asked."""
        full = _make_absolute(path)
        known = full.rstrip("/")
        if not full.startswith(self._prefixes) and known not in self._roots:
            return None
        if self._changed.has(known):
            return None
        for root, server in self._servers:
            if known.startswith(root) and known[len(root) : len(root) + 1] in ("", "/"):
                if full != known and not _is_served_folder(server, known):
                    return None  # the original knows how to complain
                return known, server
        return None

    def _noting(self, *changed: tuple[Any, int | None]) -> contextlib.AbstractContextManager[None]:
        """Whoever changes these paths (and the folders that they are relative to) does it here."""
        noted: list[str] = []
        for path, folder in changed:
            full = _make_absolute(_in_folder(path, folder)).rstrip("/")
            if full.startswith(self._prefixes) or full in self._roots:
                noted.append(full)
            elif full:
                noted += [root for root in self._roots if root.startswith(f"{full}/")]
        return self._changed.noting(noted)

    def replace_opening(self) -> None:
        """`open`, `io.open` and `os.open`."""
        plain_os_open = os.open
        served_open = self._open(builtins.open, plain_os_open)
        served_open.__module__ = "io"  # where pickle finds it again
        builtins.open = io.open = served_open
        _put("open", self._os_open(plain_os_open))

    def _open(
        self, plain_open: Callable[..., Any], plain_os_open: Callable[..., int]
    ) -> Callable[..., Any]:
        @wraps(plain_open)
        def served_open(  # noqa: PLR0917 - as the original has it
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,  # noqa: FBT001, FBT002 - as the original has it
            opener: Callable[[str, int], int] | None = None,
        ) -> Any:
            if opener is None and type(mode) is str and _may_write(mode):
                with self._noting((file, None)):
                    return plain_open(
                        file, mode, buffering, encoding, errors, newline, closefd, opener
                    )
            if opener is None and closefd and type(mode) is str:
                found = self._find(file)
                content = None
                if found is not None and mode in SIMPLE_MODES and buffering:
                    content = found[1].read(found[0])
                if (
                    found is not None
                    and content is not None
                    and ("b" not in mode or encoding is errors is newline is None)
                ):
                    name = os.fspath(file)
                    given = name, mode, buffering, encoding, errors, newline
                    return open_held(content, *given, found[0])
                if found is not None:
                    opener = self._opener(found, plain_os_open)
            return plain_open(file, mode, buffering, encoding, errors, newline, closefd, opener)

        return served_open

    def _os_open(self, plain_os_open: Callable[..., int]) -> Callable[..., int]:
        @wraps(plain_os_open)
        def served_os_open(
            path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
        ) -> int:
            if flags & _WRITING:
                with self._noting((path, dir_fd)):
                    return plain_os_open(path, flags, mode, dir_fd=dir_fd)
            if dir_fd is None and not flags & _NOT_SERVED:
                found = self._find(path)
                descriptor = None if found is None else found[1].open(found[0])
                if descriptor is not None:
                    return descriptor
            return plain_os_open(path, flags, mode, dir_fd=dir_fd)

        return served_os_open

    @staticmethod
    def _opener(
        found: tuple[str, PathServer], plain_os_open: Callable[..., int]
    ) -> Callable[[str, int], int]:
        def opener(path: str, flags: int) -> int:
            descriptor = found[1].open(found[0])
            return plain_os_open(path, flags, 0o666) if descriptor is None else descriptor

        return opener

    def replace_changing(self) -> None:
        """Those of `CHANGING`; what they do is the original's."""
        for name, arguments in CHANGING.items():
            _put(name, self._change(getattr(os, name), arguments))

    def _change(
        self, plain: Callable[..., Any], arguments: tuple[tuple[str, str], ...]
    ) -> Callable[..., Any]:
        @wraps(plain)
        def change(*args: Any, **options: Any) -> Any:
            given = dict(zip((name for name, _ in arguments), args, strict=False)) | options
            changed = [(given.get(name), given.get(folder)) for name, folder in arguments]
            with self._noting(*changed):
                return plain(*args, **options)

        return change

    def replace_asking(self) -> None:
        """Status and listing; the cache leaves these to the mount, packs answer them."""
        _put("stat", self._status(os.stat))
        _put("lstat", self._status(os.lstat))
        _put("access", self._access(os.access))
        _put("listdir", self._listdir(os.listdir))
        _put("scandir", self._scandir(os.scandir))

    def replace_in_c(self, module: str) -> None:
        """Those of `C_READERS` and `C_WRITERS`, now that their module is there."""
        if module in C_READERS:
            self._replace_reader(module, C_READERS[module])
        if module in C_WRITERS:
            self._replace_writer(module, *C_WRITERS[module])

    def _replace_reader(self, module: str, function: str) -> None:
        owner = sys.modules[module]
        plain = getattr(owner, function)

        @wraps(plain)
        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            found = self._find(path)
            descriptor = None if found is None else found[1].open(found[0])
            if descriptor is None:
                return plain(path, *args, **kwargs)
            try:
                return plain(f"/proc/self/fd/{descriptor}", *args, **kwargs)
            finally:
                os.close(descriptor)

        setattr(owner, function, read)

    def _replace_writer(self, module: str, function: str, position: int, name: str) -> None:
        owner = sys.modules[module]
        plain = getattr(owner, function)

        @wraps(plain)
        def write(*args: Any, **kwargs: Any) -> Any:
            path = args[position] if position < len(args) else kwargs.get(name)
            with self._noting((path, None)):
                pass  # it stays noted even if writing fails: half of it may be on the disk
            return plain(*args, **kwargs)

        setattr(owner, function, write)

    def _status(self, plain: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        @wraps(plain)
        def status(path: Any, **options: Any) -> os.stat_result:
            if options.get("dir_fd") is None:
                found = self._find(path)
                known = None if found is None else found[1].status(found[0])
                if known is not None:
                    return known
            return plain(path, **options)

        return status

    def _access(self, plain: Callable[..., bool]) -> Callable[..., bool]:
        @wraps(plain)
        def access(path: Any, mode: int, **options: Any) -> bool:
            found = self._find(path) if options.get("dir_fd") is None else None
            known = None if found is None else found[1].status(found[0])
            if known is None:
                return plain(path, mode, **options)
            is_folder = stat.S_ISDIR(known.st_mode)
            return not mode & os.W_OK and (is_folder or not mode & os.X_OK)

        return access

    def _children(self, path: Any) -> list[Child] | None:
        found = self._find("." if path is None else path)
        children = None if found is None else found[1].list(found[0])
        if found is None or children is None:
            return None
        names = self._changed.find_names(found[0])
        return _correct(children, found[0], names) if names else children

    def _listdir(self, plain: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        @wraps(plain)
        def listdir(path: Any = None) -> list[Any]:
            children = self._children(path)
            if children is None:
                return plain(path)
            names = [child.name for child in children]
            return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

        return listdir

    def _scandir(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        from fuelline.fix.files.packed import PackedListing  # noqa: PLC0415 - there is a pack

        @wraps(plain)
        def scandir(path: Any = None) -> Any:
            children = self._children(path)
            if children is None:
                return plain(path)
            return PackedListing(path, children)

        return scandir


def _may_write(mode: str) -> bool:
    """Not if it is refused for a letter that no mode has, before anything is opened."""
    return not _WRITING_LETTERS.isdisjoint(mode) and _MODE_LETTERS.issuperset(mode)


def _make_absolute(path: Any) -> str:
    """Without `.` and `..`; nothing if it is no path, or cannot be known."""
    if type(path) is not str:
        if isinstance(path, int):
            return ""
        try:
            path = os.fsdecode(path)
        except (TypeError, UnicodeError):
            return ""
    full = path if path[:1] == "/" else _below_here(path)
    return _normalise(full) if "//" in full or "/." in full else full


def _is_served_folder(server: PathServer, path: str) -> bool:
    status = server.status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _below_here(path: str) -> str:
    """Absolute; nothing where there is no current folder any more."""
    try:
        return f"{os.getcwd()}/{path}"  # noqa: PTH109
    except OSError:
        return ""


def _normalise(path: str) -> str:
    """An absolute path without `.` and `..`; nothing where a `..` does not follow a folder.

    A `/` at its end stays: it says that this is a folder. Behind a link `..` is the folder above
    what the link points to. 3 us for each `..`.
    """
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if parts and not _is_folder("/" + "/".join(parts)):
                return ""
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    end = "/" if parts and path.endswith(("/", "/.", "/..")) else ""
    return "/" + "/".join(parts) + end


def _is_folder(path: str) -> bool:
    """A folder and no link to one, on the disk; in a pack if it is not on the disk any more."""
    for ask in (_lstat, os.lstat):
        try:
            return stat.S_ISDIR(ask(path).st_mode)
        except OSError:  # noqa: PERF203 - each has its own answer
            continue
    return False


def _in_folder(path: Any, folder: int | None) -> Any:
    """A path that may be relative to an open folder."""
    if folder is None:
        return path
    try:
        name = os.fsdecode(path)
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)  # noqa: PTH115
    except (OSError, TypeError, UnicodeError):
        return path  # the original knows how to complain


def _correct(children: list[Child], folder: str, names: list[str]) -> list[Child]:
    """A listing in which these names are as on the disk."""
    from fuelline.fix.files.shards import Child  # noqa: PLC0415 - loaded by whoever made the list

    found = [child for child in children if child.name not in names]
    for name in names:
        try:
            found.append(Child(name, _stat(f"{folder}/{name}")))
        except OSError:  # noqa: PERF203 - it was removed
            continue
    return found


def _renew_accessor() -> None:
    """Let the `pathlib` of Python 3.10 call what is replaced.

    It copies functions into a class: the originals if it was imported before us, and ours as
    methods, which would be given one argument too many, if it was imported after.
    """
    accessor = vars(sys.modules["pathlib"])["_NormalAccessor"]
    for name in vars(accessor).keys() & {"stat", "listdir", "scandir", *CHANGING}:
        setattr(accessor, name, staticmethod(getattr(os, name)))
    accessor.open = staticmethod(io.open)


def _put(name: str, function: Any) -> None:
    """Replace a function of `os`, also in the sets that say what it can do (`shutil` asks)."""
    plain = getattr(os, name)
    for able in (
        os.supports_dir_fd,
        os.supports_fd,
        os.supports_follow_symlinks,
        os.supports_effective_ids,
    ):
        if plain in able:
            able.add(function)
    setattr(os, name, function)


# The originals, from before this layer was put in place.
_lstat, _stat = os.lstat, os.stat
