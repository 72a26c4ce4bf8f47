"""How much of a recording the limits here allow, decided before the job starts.

Recording takes processes, descriptors and memory, and a job may need the last of each. We take no
more than a twentieth of what a limit leaves. Where that is too little, the job takes the place of
the launcher and is recorded by its hooks alone, or not at all. Standard library only, and small:
the launcher holds the job's exit code.

What is taken, measured with a small training: hooks in the job 0.6 MB of memory (0.2 MB of address
space) a process and two descriptors a thread, for eight threads at most; the launcher 9 MB. The
observer, py-spy and the report come on top, but the kernel ends those before the job
(`oom_score_adj` 1000), so they count as processes and not as memory.
"""
# ruff: noqa: PTH116, PTH118, PTH120, PTH123, PTH208 - no pathlib: small, and read with /proc open

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Extent", "find_extent"]

LEAST_PROCESSES = 400
"""Twenty times what we start: the observer and its thread, four py-spy of three threads, and the
report, which loads while the job runs."""
LEAST_DESCRIPTORS = 64
"""Hooks keep none below 400 (record/hooks/guest.py) and open two at a time."""
LEAST_MEMORY_BYTES = 200 << 20
"""Twenty times the launcher and the hooks, of a control group's limit."""
EARLY_MEMORY_BYTES = 1 << 30
"""Twenty times what the report takes while it waits for the job to end; below it starts then."""
TOGETHER_TIMES = 4
"""As many times either where the kernel ends a whole group at once (`memory.oom.group`, as on
Kubernetes): there the observer and the report count as memory, since nobody is taken first."""

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
    memory_bytes = min(_memory_limits(root), default=_UNLIMITED)
    is_one = any(_number(f"{group}/memory.oom.group") for group in _list_groups(root, "memory"))
    times = TOGETHER_TIMES if is_one else 1
    if memory_bytes < times * LEAST_MEMORY_BYTES:
        why = f"only {memory_bytes >> 20} MiB of memory are allowed (control group)"
        return Extent("inside", why, is_roomy=False)
    return Extent(is_roomy=memory_bytes >= times * EARLY_MEMORY_BYTES)


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
        return  # whoever hides his processes from us hides their number, too
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


def _memory_limits(root: str) -> Iterator[int]:
    for group in _list_groups(root, "memory"):
        for file in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            limit = _number(f"{group}/{file}")
            if limit is not None and limit < _UNLIMITED:
                yield limit


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
        while len(group) > len(top):
            yield group
            group = os.path.dirname(group)
        yield top


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
