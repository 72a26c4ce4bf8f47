"""A second's look at several jobs at once, for a list of them: T0 only, 1 ms of CPU each."""

import os
import time
from collections.abc import Callable, Iterable

from fuelline.record.attach.jobs import Job
from fuelline.record.samplers.blocked import Resolver
from fuelline.record.samplers.descriptors import Descriptors
from fuelline.record.samplers.mounts import MountTable
from fuelline.record.samplers.places import Places
from fuelline.record.samplers.procfs import read_kept
from fuelline.record.samplers.tree import Process

_LOOKS = 25
_APART_S = 0.04


def glance(
    jobs: Iterable[Job],
    wait: Callable[[float], object],
    looks: int = _LOOKS,
    apart_s: float = _APART_S,
) -> dict[int, float | None]:
    """By the root of each job: share of looks in which its first trainer waited at a pipe.

    None where the kernel does not show it. `wait` sleeps so many seconds; how long is drawn at
    random around `apart_s`, so that a job with a beat does not hide in it.
    """
    resolver = Resolver(Descriptors(Places(), MountTable()))
    watched: dict[int, Process] = {}
    for job in jobs:
        try:
            process = Process(job.trainers[0].pid)
            process.refresh_threads(64)
        except OSError:
            continue
        watched[job.root.pid] = process
    hits = dict.fromkeys(watched, 0)
    seen = dict.fromkeys(watched, 0)
    for _ in range(looks):
        for root, process in watched.items():
            thread = process.threads.get(process.pid)
            try:
                line = b"" if thread is None else read_kept(thread.syscall_fd)
            except OSError:
                continue
            if thread is not None and line:
                state = resolver.explain(process, thread, line, time.monotonic_ns())[0]
                seen[root] += 1
                hits[root] += state == "pipe"
        wait(apart_s * (0.5 + os.urandom(1)[0] / 256))
    for process in watched.values():
        process.close()
    return {
        job.root.pid: hits[job.root.pid] / seen[job.root.pid] if seen.get(job.root.pid) else None
        for job in jobs
    }
