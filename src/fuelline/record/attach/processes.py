"""What /proc says of a process that is not ours: who it is, what it loaded, what we may see of it.

Only what the kernel shows to anybody is needed to list it; what it refuses is kept as a refusal,
with the command that would allow it. Of its environment a few variables are read, all of them
numbers or names that a scheduler gives (`_VARIABLES`), and nothing else of it is kept.
"""

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from fuelline.record.samplers.procfs import (
    Stat,
    find_link,
    find_text,
    list_numbers,
    parse_stat,
    read_once,
)

_FRAMEWORKS = (
    ("torch", re.compile(r"/libtorch(_cpu|_python)?\.so")),
    ("tensorflow", re.compile(r"/libtensorflow_(framework|cc)|/_pywrap_tensorflow")),
    ("jax", re.compile(r"/jaxlib/")),
)
_PYTHON = re.compile(r"/(?:lib)?python(?P<version>3\.\d+|2\.\d+)\w*(?:\.so[\d.]*)?$")
_VERSION = re.compile(r"/python(?P<version>[23]\.\d+)/")
_CONTAINER = re.compile(r"(?P<id>[0-9a-f]{64})")
_SLURM = re.compile(r"/job_(?P<id>\d+)")
_POD = re.compile(
    r"pod(?P<id>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})"
)
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_JOB_ID", "SLURM_JOB_NAME")
_DEVICE_FILE = re.compile(r"^/dev/(nvidia\d+|kfd|dri/renderD\d+|accel/|davinci\d+|vfio/\d+)")
_LAUNCHERS = re.compile(
    r"torch\.distributed\.(run|launch)|(^|/)torchrun$|accelerate(\.commands\.launch)?$|(^|/)deepspeed$"
    r"|(^|/)fuelline$|^fuelline\."
)
_HELPERS = re.compile(r"multiprocessing\.(resource_tracker|forkserver)")
_SPAWNED = re.compile(r"multiprocessing\.spawn")
_MOST_DESCRIPTORS = 512


class Seen(NamedTuple):
    """A process as it was looked at."""

    pid: int
    stat: Stat
    uid: int
    words: tuple[str, ...]
    """Its command line; empty for a kernel thread or a zombie."""
    frameworks: tuple[str, ...]
    python: str
    """Version as `3.11`; empty if none was found in what it has mapped."""
    is_refused: bool
    """Whether the kernel refuses its maps, and with them everything but the public files."""


def boot_ticks_ns() -> int:
    """Nanoseconds of the monotonic clock when /proc's start times began to count."""
    uptime_s = float((find_text("/proc/uptime") or "0").split()[0])
    return time.monotonic_ns() - int(uptime_s * 1e9)


def look_at(pid: int) -> Seen | None:
    """One process; None if there is none with this number."""
    try:
        stat = parse_stat(read_once(f"/proc/{pid}/stat"))
        uid = Path(f"/proc/{pid}").stat().st_uid
        words = tuple((find_text(f"/proc/{pid}/cmdline") or "").rstrip("\0").split("\0"))
    except (OSError, IndexError, ValueError):
        return None
    real_uid = _real_uid(pid)
    maps = _find_maps(pid)
    frameworks, python = _loaded(maps or "", pid)
    words = () if words == ("",) else words
    return Seen(
        pid, stat, uid if real_uid is None else real_uid, words, frameworks, python, maps is None
    )


def _find_maps(pid: int) -> str | None:
    """Refused maps are opened, but cannot be read; those of a kernel thread are empty."""
    try:
        return read_once(f"/proc/{pid}/maps").decode("utf-8", "replace")
    except OSError:
        return None


def _real_uid(pid: int) -> int | None:
    for line in (find_text(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None


def _loaded(maps: str, pid: int) -> tuple[tuple[str, ...], str]:
    paths = {
        line.split(maxsplit=5)[5]
        for line in maps.splitlines()
        if line.count("/") > 0 and len(line.split(maxsplit=5)) > 5
    }
    frameworks = tuple(name for name, pattern in _FRAMEWORKS if any(map(pattern.search, paths)))
    candidates = [*paths, find_link(f"/proc/{pid}/exe") or ""]
    for pattern in (_PYTHON, _VERSION):
        for path in sorted(candidates):
            found = pattern.search(path.removesuffix(" (deleted)"))
            if found:
                return frameworks, found["version"]
    return frameworks, ""


def is_launcher(seen: Seen) -> bool:
    """Whether it only starts others: torchrun and its like load torch, too."""
    return any(_LAUNCHERS.search(word) for word in seen.words[:6])


def is_helper(seen: Seen) -> bool:
    """A process that multiprocessing keeps for itself."""
    return any(_HELPERS.search(word) for word in seen.words)


def is_named_worker(seen: Seen) -> bool:
    """Whether torch has named it as a worker of a loader, as it does from 2.6 on."""
    return seen.stat.name.startswith("pt_data_worker")


def is_loader_worker(seen: Seen, parent: Seen | None) -> bool:
    """Forked from a process with the same command line, or named so by torch."""
    if is_named_worker(seen):
        return True
    if parent is None or not parent.frameworks:
        return False
    is_spawned = any(_SPAWNED.search(word) for word in seen.words)
    return (seen.words == parent.words and not is_launcher(parent)) or (
        is_spawned and "RANK" not in find_variables(seen.pid)
    )


def find_variables(pid: int) -> dict[str, str]:
    """The few variables of its environment that name a rank or a scheduler's job."""
    found = {}
    for entry in (find_text(f"/proc/{pid}/environ") or "").split("\0"):
        name, _, value = entry.partition("=")
        if name in _VARIABLES and len(value) < 100:
            found[name] = value
    return found


def find_container(pid: int) -> str:
    """The first twelve digits of its container's id, or of its pod's; empty if it is in none."""
    text = find_text(f"/proc/{pid}/cgroup") or ""
    found = _CONTAINER.search(text)
    return found["id"][:12] if found else ""


def find_pod(pid: int) -> str:
    """The id of its Kubernetes pod; empty if it is in none."""
    found = _POD.search(find_text(f"/proc/{pid}/cgroup") or "")
    return found["id"].replace("_", "-") if found else ""


def find_slurm(pid: int) -> str:
    """The number of its Slurm job; empty if it is of none."""
    found = _SLURM.search(find_text(f"/proc/{pid}/cgroup") or "")
    return found["id"] if found else find_variables(pid).get("SLURM_JOB_ID", "")


def find_device_files(pid: int) -> set[str]:
    """Accelerators that it has open."""
    try:
        numbers = list_numbers(f"/proc/{pid}/fd")[:_MOST_DESCRIPTORS]
    except OSError:
        return set()
    links = (find_link(f"/proc/{pid}/fd/{number}") for number in numbers)
    return {found[1] for link in links if link and (found := _DEVICE_FILE.match(link))}


def list_all() -> dict[int, Seen]:
    """All processes of this host with Python in them that we can see, and their ancestors."""
    found: dict[int, Seen] = {}
    for pid in list_numbers("/proc"):
        if pid == os.getpid():
            continue
        seen = look_at(pid) if _may_be_python(pid) else None
        if seen is not None:
            found[pid] = seen
    return found


def _may_be_python(pid: int) -> bool:
    """By what may be asked cheaply: 20 us a process, where reading its maps costs a millisecond."""
    link = find_link(f"/proc/{pid}/exe")
    if link is not None:
        return "python" in link or "pypy" in link
    name = find_text(f"/proc/{pid}/comm") or ""
    return name.startswith(("python", "pt_"))
