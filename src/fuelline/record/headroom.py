"""How much of a recording the limits here allow, decided before the job starts.

Recording takes processes, descriptors and memory, and a job may need the last of each. We take no
more than a twentieth of what a limit leaves. Where that is too little, the job takes the place of
the launcher and is recorded by its hooks alone, or not at all. Standard library only, and small:
the launcher holds the job's exit code.

What is taken, measured with a small training: hooks in the job 0.6 MB of memory (0.2 MB of address
space) a process and two descriptors a thread, for eight threads at most; the launcher 9 MB. The
observer, py-spy and the report come on top, but the kernel ends those before the job
(`oom_score_adj` 1000), so they count as processes and not as memory. Where it ends a whole group at
once nobody is taken first: there they count, and leave when memory runs short (`MemoryRoom`), and
their score stays the job's own (`ends_all_together`). All that is tried in real groups by
bench/oom_group.py.
"""
# ruff: noqa: PTH110, PTH116, PTH118, PTH120, PTH123, PTH208 - no pathlib: small, reads /proc

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Extent", "MemoryRoom", "ends_all_together", "find_extent"]

LEAST_PROCESSES = 400
"""Twenty times what we start: the observer and its thread, four py-spy of three threads, and the
report, which loads while the job runs."""
LEAST_DESCRIPTORS = 256
"""Hooks keep none below 400 (record/hooks/guest.py) and open two at a time: a job with nearly all
of them in use may need the same two at that moment, as ranks did under a limit of 64 that were just
connecting to each other (bench/torture)."""
LEAST_MEMORY_BYTES = 200 << 20
"""Twenty times the launcher and the hooks, of a control group's limit."""
EARLY_MEMORY_BYTES = 1 << 30
"""Twenty times what the report takes while it waits for the job to end; below it starts then."""
TOGETHER_TIMES = 4
"""As many times where the kernel ends a whole group at once (`memory.oom.group`, as on
Kubernetes), of what is left: there the observer counts as memory. The report never starts early."""
RESERVE_BYTES = 64 << 20
RESERVE_PART = 32
"""What we leave free there, or such a part of the limit if that is more: a job that needs it gets
the observer's 19 MB as well, unless it fills all of this within the 50 ms between two looks."""
_OWN_BYTES = 16 << 20
"""Taken by this process when it asks, and no loss to the job: 9 MB and what the kernel adds."""
_MOST_GROUPS = 4096
"""Looked through for our own where a namespace hides its name."""

_UNLIMITED = 1 << 60
"""Version 1 of control groups says "no limit" with a number close to 2^63."""


class Extent(NamedTuple):
    """How much is recorded."""

    kind: Literal["whole", "inside", "nothing"] = "whole"
    """inside: by the hooks in the job, without launcher, observer and report."""
    why: str = ""
    """For less than the whole: the limit, with its value and how to see it."""
    is_roomy: bool = True
    """Whether the report may be loaded while the job runs."""


def find_extent(root: str = "/") -> Extent:
    """What may be recorded under the limits of this process; `root` is for tests."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= descriptors < LEAST_DESCRIPTORS:
        why = f"only {descriptors} files may be open at once (ulimit -n)"
        return Extent("nothing", why, is_roomy=False)
    free = min((*_free_by_user(root), *_free_by_group(root)), default=(LEAST_PROCESSES, ""))
    if free[0] < LEAST_PROCESSES:
        why = f"only {max(free[0], 0)} more processes and threads may be started ({free[1]})"
        return Extent("inside", why, is_roomy=False)
    roomy = []
    for limit in _memory_limits(root):
        times = TOGETHER_TIMES if limit.ends_all else 1
        left_bytes = limit.most_bytes
        if limit.ends_all:
            left_bytes = min(MemoryRoom([limit]).count_left() + _OWN_BYTES, left_bytes)
        if left_bytes < times * LEAST_MEMORY_BYTES:
            verb = "allowed" if left_bytes == limit.most_bytes else "left"
            why = f"only {left_bytes >> 20} MiB of memory are {verb} (control group)"
            return Extent("inside", why, is_roomy=False)
        roomy.append(not limit.ends_all and limit.most_bytes >= EARLY_MEMORY_BYTES)
    return Extent(is_roomy=all(roomy) and not ends_all_together(root))


def ends_all_together(root: str = "/") -> bool:
    """Whether the kernel ends our whole control group with any one process of it.

    The mark counts without a limit of its own group: memory may run out in an outer group that a
    container does not show, or on the whole machine. The kernel then picks the process with the
    highest score and ends all beside it (mem_cgroup_get_oom_group), so ours must not be higher.
    """
    return any(_is_marked(group) for group in _list_groups(root, "memory"))


class MemoryLimit(NamedTuple):
    """What one control group allows, for itself and all groups in it."""

    most_bytes: int
    group: str
    """Its folder."""
    ends_all: bool
    """Whether the kernel ends all processes beside us, and us, if that is not enough."""


class MemoryRoom:
    """What memory is left under limits that end a whole group at once."""

    def __init__(self, limits: list[MemoryLimit]) -> None:
        self._limits = limits

    @classmethod
    def find(cls, root: str = "/") -> MemoryRoom | None:
        """Under the limits of this process; None if none of them ends a whole group."""
        limits = [each for each in _memory_limits(root) if each.ends_all]
        return cls(limits) if limits else None

    def count_left(self) -> int:
        """Bytes that may still be taken, what the kernel can reclaim among them."""
        return min(_count_left(each, _UNLIMITED) for each in self._limits)

    def is_short(self, wanted_bytes: int = 0) -> bool:
        """Whether the job may soon need what we have, once we have taken `wanted_bytes` more."""
        return any(_lacks(each, _reserve(each) + wanted_bytes) for each in self._limits)


def _reserve(limit: MemoryLimit) -> int:
    return max(RESERVE_BYTES, limit.most_bytes // RESERVE_PART)


def _lacks(limit: MemoryLimit, wanted_bytes: int) -> bool:
    return _count_left(limit, wanted_bytes) < wanted_bytes


def _count_left(limit: MemoryLimit, enough_bytes: int) -> int:
    """What is left, or at least `enough_bytes`: for that question the fast counter may do.

    The other makes the kernel add up what all cores have counted.
    """
    free_bytes = limit.most_bytes - (_number(f"{limit.group}/memory.current") or 0)
    if free_bytes >= min(enough_bytes, limit.most_bytes):
        return free_bytes
    for line in _read(f"{limit.group}/memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("active_file", "inactive_file", "slab_reclaimable") and value.isdecimal():
            free_bytes += int(value)
    return min(free_bytes, limit.most_bytes)


def _free_by_user(root: str) -> Iterator[tuple[int, str]]:
    """Under RLIMIT_NPROC, which counts the threads of a user and does not bind root.

    All threads of the host are one number (`0.10 0.15 0.09 2/345 6789`: 345 of them). Only where
    those come near the limit is each process looked at.
    """
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if limit < 0 or limit == resource.RLIM_INFINITY or os.getuid() == 0:
        return
    everyone = _read(f"{root}proc/loadavg").split()[3:4]
    used = int(everyone[0].partition("/")[2]) if everyone else limit
    if limit - used < LEAST_PROCESSES:
        used = sum(_count_threads(f"{root}proc"))
    yield limit - used, f"ulimit -u {limit}"


def _count_threads(proc: str) -> Iterator[int]:
    """Threads of this user, by process: a folder has two links more than folders in it."""
    try:
        names = os.listdir(proc)
    except OSError:
        return  # whoever hides their processes from us hides their number, too
    for name in names:
        if name.isdecimal():
            try:
                task = os.stat(f"{proc}/{name}/task")
            except OSError:
                continue  # it has ended
            if task.st_uid == os.getuid():
                yield max(task.st_nlink - 2, 1)


def _free_by_group(root: str) -> Iterator[tuple[int, str]]:
    for group in _list_groups(root, "pids"):
        limit, used = _number(f"{group}/pids.max"), _number(f"{group}/pids.current")
        if limit is not None and used is not None:
            yield limit - used, f"pids.max {limit} of the control group"


def _memory_limits(root: str) -> Iterator[MemoryLimit]:
    """Innermost first: a group is ended as one if it, or one in it that holds us, is marked so.

    A mark further out counts only for limits there (mem_cgroup_get_oom_group of the kernel).
    """
    ends_all = False
    for group in _list_groups(root, "memory"):
        ends_all = ends_all or _is_marked(group)
        for file in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            limit = _number(f"{group}/{file}")
            if limit is not None and limit < _UNLIMITED:
                yield MemoryLimit(limit, group, ends_all and file == "memory.max")


def _is_marked(group: str) -> bool:
    return bool(_number(f"{group}/memory.oom.group"))


def _list_groups(root: str, controller: str) -> Iterator[str]:
    """Folders of the control groups of this process, each with all above it.

    Lines are `4:memory:/jobs/a` (version 1) and `0::/jobs/a`. In a container the path may be one
    of the host's, which is not there; its own limit is then at the top.
    """
    for line in _read(f"{root}proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number != "0" and controller not in names.split(","):
            continue
        top = f"{root}sys/fs/cgroup" + (f"/{controller}" if number != "0" else "")
        group = os.path.join(top, path.strip("/")).rstrip("/")
        if group == top:
            group = _find_hidden(top)
        while len(group) > len(top):
            yield group
            group = os.path.dirname(group)
        yield top


def _find_hidden(top: str) -> str:
    """Our group where a namespace calls it `/`, yet the host's tree is mounted (`unshare -C`).

    Only the host's own root has no `cgroup.type`; in a container's mount the top is our group.
    """
    if not os.path.exists(f"{top}/cgroup.controllers") or os.path.exists(f"{top}/cgroup.type"):
        return top
    for count, (folder, _, _) in enumerate(os.walk(top)):
        if str(os.getpid()) in _read(f"{folder}/cgroup.procs").split():
            return folder
        if count > _MOST_GROUPS:
            break
    return top


def _number(path: str) -> int | None:
    """The number in a file; None if it says `max`, or is not there."""
    text = _read(path).strip()
    return int(text) if text.isdecimal() else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
