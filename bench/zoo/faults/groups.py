"""Faults by control groups (v1): storage rate, CPU quota, shares and affinity, memory.

Groups are made below the one that this process is in, named after this process, and removed at the
end. Only the job enters them. A controller that cannot be written to means: not planted.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.zoo.fault import NotPlanted, Planted
from bench.zoo.faults import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path("/sys/fs/cgroup")
REMOVE_TRIES = 50


@dataclass(frozen=True)
class ReadRate:
    """At most so many bytes, or requests, per second from the disk that holds the data."""

    bytes_per_s: int | None = None
    requests_per_s: int | None = None

    def missing(self) -> str | None:
        """The blkio controller."""
        return missing_controller("blkio")

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """A group whose reads are throttled above the block layer."""
        with group("blkio") as folder:
            device = disk_of(data)
            if self.bytes_per_s:
                _set(folder / "blkio.throttle.read_bps_device", f"{device} {self.bytes_per_s}")
            if self.requests_per_s:
                _set(folder / "blkio.throttle.read_iops_device", f"{device} {self.requests_per_s}")
            yield Planted(data, (folder,))


@dataclass(frozen=True)
class Quota:
    """At most so many cores' worth of CPU time, in periods of 100 ms."""

    cores: float

    def missing(self) -> str | None:
        """The cpu controller."""
        return missing_controller("cpu")

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """A group with a CFS quota."""
        with group("cpu") as folder:
            _set(folder / "cpu.cfs_period_us", "100000")
            _set(folder / "cpu.cfs_quota_us", str(int(self.cores * 100_000)))
            yield Planted(data, (folder,))


@dataclass(frozen=True)
class OneCore:
    """All processes of the job on one core."""

    def missing(self) -> str | None:
        """The cpuset controller, and a second core to be kept from."""
        if len(os.sched_getaffinity(0)) < 2:
            return "a second core"
        return missing_controller("cpuset")

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """A group with one core."""
        with group("cpuset") as folder:
            _set(folder / "cpuset.mems", _get(folder.parent / "cpuset.mems"))
            _set(folder / "cpuset.cpus", str(max(os.sched_getaffinity(0))))
            yield Planted(data, (folder,))


@dataclass(frozen=True)
class Hogs:
    """Other processes that want every core, and shares that favour them."""

    job_shares: int
    hog_shares: int = 1024

    def missing(self) -> str | None:
        """The cpu controller."""
        return missing_controller("cpu")

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """Two groups, one for the job, one for a busy loop per core."""
        with group("cpu", "job") as job, group("cpu", "hogs") as hogs:
            _set(job / "cpu.shares", str(self.job_shares))
            _set(hogs / "cpu.shares", str(self.hog_shares))
            spin = ["-c", "while True: pass"]
            with contextlib.ExitStack() as stack:
                for _ in os.sched_getaffinity(0):
                    stack.enter_context(processes.python(spin, groups=(hogs,)))
                yield Planted(data, (job,))


@dataclass(frozen=True)
class MemoryLimit:
    """So little memory that the data set does not stay in the page cache."""

    size_bytes: int

    def missing(self) -> str | None:
        """The memory controller."""
        return missing_controller("memory")

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """A group with a limit; the data's pages are dropped so that they are charged to it."""
        with group("memory") as folder:
            _set(folder / "memory.limit_in_bytes", str(self.size_bytes))
            yield Planted(data, (folder,))


def missing_controller(name: str) -> str | None:
    """What is missing to make a group of this controller; None if it can be made."""
    if os.geteuid() != 0:
        return "root"
    try:
        writable = os.access(own_group(name), os.W_OK)
    except NotPlanted as reason:
        return str(reason)
    return None if writable else f"a writable {name} cgroup"


@contextlib.contextmanager
def group(controller: str, name: str = "job") -> Iterator[Path]:
    """A control group of our own, empty at first and removed at the end."""
    folder = own_group(controller) / f"fuelline-zoo-{os.getpid()}-{name}"
    folder.mkdir(exist_ok=True)
    try:
        yield folder
    finally:
        _remove(folder)


def own_group(controller: str) -> Path:
    """Where this process is in a v1 hierarchy.

    `/proc/self/cgroup` has lines such as `7:blkio:/` and `2:cpu,cpuacct:/user.slice`.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            for mount in (ROOT / controller, ROOT / controllers):
                if mount.is_dir():
                    return mount / path.lstrip("/")
    raise NotPlanted(f"the {controller} controller of cgroup v1")


def disk_of(path: Path) -> str:
    """`major:minor` of the whole disk that holds a path; throttles refuse partitions."""
    number = path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    node = Path("/sys/dev/block") / device
    if not node.exists():
        raise NotPlanted(f"a disk below {path} (it is on device {device})")
    return _get(node / ".." / "dev") if (node / "partition").exists() else device


def _remove(folder: Path) -> None:
    """Remove a group; those still in it (a killed job's leftovers) go to the parent first."""
    for _ in range(REMOVE_TRIES):
        for pid in _get(folder / "cgroup.procs").split():
            _move(pid, folder.parent)
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"cannot remove the group {folder}: remove it by hand with rmdir")


def _move(pid: str, group: Path) -> None:
    try:
        _set(group / "cgroup.procs", pid)
    except ProcessLookupError:
        return  # it has ended in the meantime, as it should


def _set(file: Path, value: str) -> None:
    file.write_text(value)


def _get(file: Path) -> str:
    return file.read_text().strip()
