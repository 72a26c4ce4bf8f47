"""Jobs on this host: which processes belong together, who of them trains, what they are called."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fuelline.record.attach.processes import (
    Seen,
    find_container,
    find_device_files,
    find_pod,
    find_slurm,
    find_variables,
    is_helper,
    is_launcher,
    is_loader_worker,
    list_all,
    look_at,
)
from fuelline.record.samplers.procfs import list_numbers, parse_stat, read_once
from fuelline.store.runs import is_there, name_job

_SERVER = re.compile(
    r"(^|[/.\s])(vllm|sglang|tritonserver|text-generation-launcher|tgi|lmdeploy|ray::|trtllm)"
)
_MOST_TRAINERS = 64


@dataclass(frozen=True, slots=True)
class Job:
    """Processes of one job on this host."""

    root: Seen
    """What it is attached to by: the launcher, or the only process."""
    trainers: tuple[Seen, ...]
    """Processes that compute; of an inference server, its engines."""
    workers: int = 0
    devices: frozenset[str] = field(default_factory=frozenset)
    container: str = ""
    pod: str = ""
    slurm: str = ""

    @property
    def name(self) -> str:
        """As a recorded run of it would be called: its script or module, else its program."""
        words = [_from_here(self.root.pid, word) for word in self.root.words]
        return name_job(words) or self.root.stat.name

    @property
    def frameworks(self) -> tuple[str, ...]:
        """What its processes loaded."""
        return tuple(sorted({name for each in self.trainers for name in each.frameworks}))

    @property
    def is_server(self) -> bool:
        """Whether it answers requests, by the name of its program."""
        words = [" ".join(each.words[:8]) for each in (self.root, *self.trainers)]
        return any(_SERVER.search(text) for text in words)


def _from_here(pid: int, word: str) -> str:
    """A path that a process was given, as it is found from outside; anything else as it is."""
    whole = Path(f"/proc/{pid}/root{word}" if word.startswith("/") else f"/proc/{pid}/cwd/{word}")
    is_path = "/" in word or word.endswith((".py", ".sh"))
    return str(whole) if is_path and is_there(whole) else word


def find_jobs(processes: Mapping[int, Seen] | None = None) -> list[Job]:
    """All jobs that loaded a framework, oldest first."""
    seen = list_all() if processes is None else dict(processes)
    heavy = {pid: each for pid, each in seen.items() if each.frameworks}
    roots: dict[int, list[Seen]] = {}
    workers: dict[int, int] = {}
    for pid, each in heavy.items():
        if is_helper(each) or each.stat.has_ended:
            continue
        line = [heavy[up] for up in _ancestors(pid, seen) if up in heavy]
        root = (line or [each])[-1]
        parent = heavy.get(each.stat.ppid)
        if is_loader_worker(each, parent):
            workers[root.pid] = workers.get(root.pid, 0) + 1
        elif not is_launcher(each):
            roots.setdefault(root.pid, []).append(each)
    jobs = [_describe(heavy[pid], found, workers.get(pid, 0)) for pid, found in roots.items()]
    return sorted(jobs, key=lambda job: (job.root.stat.start_ticks, job.root.pid))


def _ancestors(pid: int, seen: Mapping[int, Seen]) -> Iterable[int]:
    at, passed = seen[pid].stat.ppid, {pid}
    while at in seen and at not in passed:
        yield at
        passed.add(at)
        at = seen[at].stat.ppid


def find_separate(job: Job) -> list[Seen]:
    """Trainers that are jobs of their own: neither ranks of one job nor engines of one server."""
    words = {each.words for each in job.trainers}
    ranked = all("RANK" in find_variables(each.pid) for each in job.trainers)
    is_one = len(words) <= 1 or ranked or job.is_server
    return [] if is_one else list(job.trainers)


def _describe(root: Seen, trainers: list[Seen], workers: int) -> Job:
    devices = frozenset(name for each in trainers for name in find_device_files(each.pid))
    first = trainers[0].pid
    return Job(
        root=root,
        trainers=tuple(sorted(trainers, key=_by_rank)[:_MOST_TRAINERS]),
        workers=workers,
        devices=devices,
        container=find_container(first),
        pod=find_pod(first),
        slurm=find_slurm(first),
    )


def _by_rank(seen: Seen) -> tuple[int, int]:
    rank = find_variables(seen.pid).get("RANK", "")
    return (int(rank) if rank.isdigit() else 1 << 30, seen.pid)


def find_below(root: Seen) -> dict[int, Seen]:
    """A process and everything below it, each looked at."""
    parents: dict[int, list[int]] = {}
    for pid in list_numbers("/proc"):
        parent = _find_parent(pid)
        if parent is not None:
            parents.setdefault(parent, []).append(pid)
    found, waiting = {root.pid: root}, [root.pid]
    while waiting:
        for pid in parents.get(waiting.pop(), []):
            seen = None if pid in found else look_at(pid)
            if seen is not None:
                found[pid] = seen
                waiting.append(pid)
    return found


def _find_parent(pid: int) -> int | None:
    try:
        return parse_stat(read_once(f"/proc/{pid}/stat")).ppid
    except (OSError, IndexError, ValueError):  # it has ended
        return None


def job_of(root: Seen) -> Job:
    """The job that a process is, or is the top of, whatever it has loaded."""
    below = find_below(root)
    trainers, workers = [], 0
    for pid, each in below.items():
        parent = below.get(each.stat.ppid)
        if is_helper(each) or each.stat.has_ended:
            continue
        if pid != root.pid and is_loader_worker(each, parent):
            workers += 1
        elif each.frameworks and not is_launcher(each):
            trainers.append(each)
    if not trainers:
        trainers = [root]
    return _describe(root, trainers, workers)
