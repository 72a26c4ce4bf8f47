"""What is left on this machine for more workers: cores, memory, shared memory, run queue.

Standard library only: read inside the user's job, at every decision and not at every batch. A
number that cannot be read is None, and what would need it is then not done. Control groups of both
versions are followed from the process's own up to the root: the tightest one counts.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "count_cores",
    "count_local_ranks",
    "find_free_memory",
    "find_free_shared",
    "find_queued",
    "has_own_cores",
    "list_quotas",
]

_LOCAL_RANKS = (
    "LOCAL_WORLD_SIZE",  # torchrun, accelerate, lightning
    "OMPI_COMM_WORLD_LOCAL_SIZE",  # Open MPI
    "MPI_LOCALNRANKS",  # MPICH and Intel MPI
    "SLURM_STEP_TASKS_PER_NODE",  # srun: `8(x2),4`; unlike SLURM_NTASKS_PER_NODE only inside a step
)
"""How launchers number the processes that they start on one host, the innermost launcher first."""
_PERIOD_US = 100_000
_UNLIMITED = 1 << 60
_TICKS = os.sysconf("SC_CLK_TCK")


def count_cores(root: Path = Path("/"), ranks: int = 1) -> float:
    """Cores for one of this many ranks here: by affinity and by the quotas above it.

    A rank that was given cores of its own, so fewer than who started it, shares only the quotas.
    """
    quotas = [_quota(group) for group in _groups(root, "cpu")]
    own = len(os.sched_getaffinity(0))
    sharing = 1 if has_own_cores() else ranks
    return min([own / sharing, *(each / ranks for each in quotas if each)])


def has_own_cores() -> bool:
    """Whether this process was given fewer cores than who started it."""
    return len(os.sched_getaffinity(0)) < _count_parents_cores()


def list_quotas(root: Path = Path("/")) -> list[str]:
    """The control groups above this process that limit its cores."""
    return [str(group) for group in _groups(root, "cpu") if _quota(group)]


def _count_parents_cores() -> int:
    try:
        return len(os.sched_getaffinity(os.getppid()))
    except OSError:
        return 0  # it is gone, or not ours to ask


def count_local_ranks(environment: Mapping[str, str] = os.environ) -> int:
    """Training processes on this host that share its cores; 1 where no launcher says."""
    for name in _LOCAL_RANKS:
        counts = [int(each) for each in re.findall(r"(?:^|,)(\d+)", environment.get(name, ""))]
        if counts:
            return max(1, *counts)
    return 1


def find_free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that can still be had: of the host, and of every group above us."""
    free = [_host_memory(root), *(_group_memory(group) for group in _groups(root, "memory"))]
    known = [each for each in free if each is not None]
    return min(known) if known else None


def find_free_shared(folder: str = "/dev/shm") -> int | None:
    """Bytes left in the shared memory that batches travel through."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def find_queued(pids: list[int], root: Path = Path("/")) -> float | None:
    """Seconds that processes have waited for a core since they started.

    `12345678 2345 99` (schedstat: ns running, ns waiting, slices)
    """
    waited_ns = 0
    for pid in pids:
        text = _read(root / "proc" / str(pid) / "schedstat")
        if text is None:
            return None
        waited_ns += int(text.split()[1])
    return waited_ns / 1e9


def _groups(root: Path, controller: str) -> list[Path]:
    """Folders of the control groups above this process, the innermost first."""
    text = _read(root / "proc/self/cgroup")
    found: list[Path] = []
    for line in (text or "").splitlines():
        number, names, path = line.split(":", 2)
        if number == "0":
            top = root / "sys/fs/cgroup"
        elif controller in names.split(","):
            top = root / "sys/fs/cgroup" / controller
        else:
            continue
        inner = top / path.lstrip("/")
        found += [each for each in (inner, *inner.parents) if each.is_relative_to(top)]
    return found


def _quota(group: Path) -> float:
    """Cores that a group may use; 0 without a limit."""
    text = _read(group / "cpu.max")
    if text is not None:
        quota, _, period = text.strip().partition(" ")
        return 0.0 if quota == "max" else int(quota) / int(period or _PERIOD_US)
    quota_us, period_us = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and period_us and quota_us > 0 else 0.0


def _host_memory(root: Path) -> int | None:
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _group_memory(group: Path) -> int | None:
    """Limit minus use; what the page cache holds and can give back counts as free."""
    limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
    used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes")
    if limit is None or used is None or limit >= _UNLIMITED:
        return None
    kept = 0
    for line in (_read(group / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name in {"inactive_file", "total_inactive_file"}:
            kept = max(kept, int(value))
    return limit - used + kept


def _number(path: Path) -> int | None:
    text = _read(path)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
