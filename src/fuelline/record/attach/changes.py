"""What can be changed now without touching the job: on its host, and taken back at detach.

Nothing here signals, traces or writes to a process of the job. Each change knows how it was before,
and `undo` puts that back; what the kernel refuses is reported, not raised.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from fuelline.record.samplers.procfs import find_link, find_text, list_numbers
from fuelline.schema.names import clean
from fuelline.schema.units import size

READAHEAD_KB = 4096
"""A sequential reader is served from memory at 100 MB/s and 40 ms a request with that much."""
MOST_WARMED_BYTES = 4 << 30
_SHARE_OF_FREE = 0.5
"""Of the memory that the kernel says is available: the rest is the job's."""
_CHUNK_BYTES = 8 << 20
BUSY_SHARE = 0.1
"""Of a core: a neighbour that uses less is not worth moving."""


class HostChange(Protocol):
    """One thing that can be changed on this host, and put back."""

    def describe(self) -> str:
        """What would be done, and what for."""
        ...

    def apply(self) -> str | None:
        """Do it; why it could not be done, if so."""
        ...

    def undo(self) -> None:
        """Put back what was there before; nothing if it was not applied."""
        ...

    def list_commands(self) -> list[str]:
        """What a shell would put it back with, should nobody call `undo`."""
        ...


class MoveNeighbour:
    """A process that is none of the job is kept to one core, so that the others are the job's."""

    def __init__(self, pid: int, name: str, core: int, share: float) -> None:
        self._pid, self._name, self._core, self._share = pid, name, core, share
        self._before: dict[int, set[int]] = {}

    def describe(self) -> str:
        """What would be done, and what for."""
        return (
            f"keep process {self._pid} ({clean(self._name)}, {self._share:.1f} cores) to core "
            f"{self._core}: taskset -acp {self._core} {self._pid}"
        )

    def apply(self) -> str | None:
        """Do it, thread by thread; a thread's children begin with its affinity."""
        try:
            for tid in list_numbers(f"/proc/{self._pid}/task"):
                before = os.sched_getaffinity(tid)
                os.sched_setaffinity(tid, {self._core})
                self._before[tid] = before
        except OSError as error:
            self.undo()
            return f"process {self._pid}: {error.strerror}"
        return None

    def undo(self) -> None:
        """Give each thread its cores back; threads that began meanwhile get what the first had."""
        if not self._before:
            return
        usual = self._before.get(self._pid) or next(iter(self._before.values()))
        try:
            tids = list_numbers(f"/proc/{self._pid}/task")
        except OSError:  # it has ended
            tids = []
        for tid in tids:
            _set_cores(tid, self._before.get(tid, usual))
        self._before = {}

    def list_commands(self) -> list[str]:
        """The affinity of each thread, as it is before."""
        cores = os.sched_getaffinity(self._pid)
        return [f"taskset -acp {format_cores(cores)} {self._pid}"]


def format_cores(cores: set[int]) -> str:
    """As taskset takes them."""
    return ",".join(map(str, sorted(cores)))


def _set_cores(tid: int, cores: set[int]) -> None:
    try:
        os.sched_setaffinity(tid, cores)
    except OSError:  # it has ended
        return


class Readahead:
    """The kernel reads further ahead from one disk."""

    def __init__(self, device: str, root: Path = Path("/sys/dev/block")) -> None:
        self._device = device
        folder = root / device
        own, whole = folder / "queue/read_ahead_kb", folder / "../queue/read_ahead_kb"
        self._path = own if own.exists() else whole
        self._before = ""

    @property
    def is_there(self) -> bool:
        """Whether there is such a disk, and it reads less far ahead than it could."""
        text = (find_text(str(self._path)) or "").strip()
        return text.isdigit() and int(text) < READAHEAD_KB

    def describe(self) -> str:
        """What would be done, and what for."""
        return (
            f"read {READAHEAD_KB} kB ahead from disk {self._device} (now "
            f"{(find_text(str(self._path)) or '?').strip()} kB): echo {READAHEAD_KB} > {self._path}"
        )

    def apply(self) -> str | None:
        """Write the setting."""
        try:
            before = self._path.read_text().strip()
            self._path.write_text(str(READAHEAD_KB))
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        self._before = before
        return None

    def undo(self) -> None:
        """Write the old one, unless somebody else has written another meanwhile."""
        if self._before and (find_text(str(self._path)) or "").strip() == str(READAHEAD_KB):
            self._path.write_text(self._before)
        self._before = ""

    def list_commands(self) -> list[str]:
        """The setting as it is before."""
        return [f"echo {(find_text(str(self._path)) or '').strip()} > {self._path}"]


class Warm:
    """Files that the job will come to are read into the page cache before it asks for them.

    They are the files of the folders that its workers were seen to open files in. Reads are ours
    and at idle I/O priority; nothing has to be put back, the kernel drops pages as it needs them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = _list_files(folder)
        self._most_bytes = min(MOST_WARMED_BYTES, int(_available_bytes() * _SHARE_OF_FREE))
        self.read_bytes = 0

    @property
    def is_worth(self) -> bool:
        """Whether there is anything, and it fits into free memory."""
        return 0 < self._size() <= self._most_bytes

    def _size(self) -> int:
        return sum(size_bytes for _, size_bytes in self._files)

    def describe(self) -> str:
        """What would be done, and what for."""
        return (
            f"read {len(self._files):,} files below {clean(str(self._folder))} "
            f"({size(self._size())}) into the page cache, at idle priority"
        )

    def apply(self) -> str | None:
        """Read them, one after the other."""
        for path, _ in self._files:
            self.read_bytes += _read_through(path)
        return None

    def undo(self) -> None:
        """The page cache is the kernel's."""

    def list_commands(self) -> list[str]:
        """There is nothing to put back."""
        return []


def _read_through(path: str) -> int:
    """Ask the kernel for a file's pages; what cannot be read is left out."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return 0
    done = 0
    try:
        while piece := os.read(descriptor, _CHUNK_BYTES):
            done += len(piece)
    except OSError:
        return done
    finally:
        os.close(descriptor)
    return done


MOST_FILES = 200_000


def _list_files(folder: Path) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = f"{parent}/{name}"
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if status.st_mode & 0o170000 == 0o100000:
                found.append((path, status.st_size))
            if len(found) >= MOST_FILES:
                return []
    return found


def _available_bytes() -> int:
    for line in (find_text("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


class Neighbour(NamedTuple):
    """A process outside the job that uses cores."""

    pid: int
    name: str
    cores: float


class Wanted(NamedTuple):
    """What the diagnosis found, as far as a change on this host could help."""

    lacks_cores: bool
    reads_slowly: bool
    folder: str
    """Where its workers read; empty if that is not known."""
    device: str
    """`major:minor` of the disk; empty if it is none."""
    neighbours: Sequence[Neighbour]


def propose(wanted: Wanted, job_pid: int) -> list[HostChange]:
    """Changes that address what was found, in the order in which they would be made."""
    changes: list[HostChange] = []
    if wanted.lacks_cores:
        changes += _for_cores(wanted.neighbours)
    if wanted.reads_slowly and wanted.folder and _is_seen_alike(job_pid):
        warm = Warm(Path(wanted.folder))
        changes += [warm] if warm.is_worth else []
    if wanted.reads_slowly and wanted.device:
        ahead = Readahead(wanted.device)
        changes += [ahead] if ahead.is_there else []
    return changes


def _for_cores(neighbours: Iterable[Neighbour]) -> list[HostChange]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return []
    busy = [each for each in neighbours if each.cores >= BUSY_SHARE]
    return [MoveNeighbour(each.pid, each.name, cores[-1], each.cores) for each in busy]


def _is_seen_alike(pid: int) -> bool:
    """Whether a path means the same file to the job as to us."""
    return find_link(f"/proc/{pid}/ns/mnt") == find_link("/proc/self/ns/mnt")
