"""Batches counted without hooks, and what workers spent on them: the kernel's own counters.

A DataLoader's trainer sends one message a batch to its workers: each queue has a thread that
writes it to a pipe, and `/proc/PID/task/TID/io` counts that thread's write calls. A worker answers
with one message a batch, by a thread of its own. Nothing is read from the job's memory for that.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from fuelline.record.samplers.procfs import find_text, parse_fields, read_kept
from fuelline.record.samplers.tree import Process

MOST_THREADS = 64
"""Of one process whose writes are counted; queues have one thread a worker."""
LARGE_MESSAGE_BYTES = 16 * 1024
"""multiprocessing writes header and body of a larger message apart: two calls."""


class Work(NamedTuple):
    """Counters of a worker, cumulative; -1 where they are refused."""

    messages: int
    message_bytes: int
    cpu_ns: int
    queued_ns: int
    helper_cpu_ns: int
    read_bytes: int
    disk_bytes: int
    read_calls: int
    faults: int


@dataclass(slots=True)
class Look:
    """What the counters showed at one moment."""

    at_ns: int
    writes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By thread of the trainer: write calls and bytes."""
    clock_ns: tuple[int, int] = (-1, -1)
    """The trainer's main thread: on a core, waiting for one."""
    workers: dict[int, Work] = field(default_factory=dict)


def look(trainer: Process, workers: list[Process], now_ns: int) -> Look:
    """Read them all; 15 us a thread."""
    found = Look(now_ns)
    for tid in [tid for tid in trainer.threads if tid != trainer.pid][:MOST_THREADS]:
        counted = _count_writes(trainer, tid)
        if counted is not None:
            found.writes[tid] = counted
    found.clock_ns = _clock(trainer, trainer.pid)
    for worker in workers:
        found.workers[worker.pid] = _read_work(worker)
    return found


def _count_writes(process: Process, tid: int) -> tuple[int, int] | None:
    text = find_text(f"{tid}/io", process.task_fd)
    if not text:
        return None
    fields = parse_fields(text.encode())
    return fields.get("syscw", 0), fields.get("wchar", 0)


def _clock(process: Process, tid: int) -> tuple[int, int]:
    thread = process.threads.get(tid)
    try:
        words = read_kept(thread.schedstat_fd).split() if thread is not None else []
    except OSError:
        words = []
    return (int(words[0]), int(words[1])) if len(words) >= 2 else (-1, -1)


def _read_work(worker: Process) -> Work:
    helpers = [tid for tid in worker.threads if tid != worker.pid][:MOST_THREADS]
    counted = [each for tid in helpers if (each := _count_writes(worker, tid)) is not None]
    cpu_ns, queued_ns = _clock(worker, worker.pid)
    helper_ns = sum(max(0, _clock(worker, tid)[0]) for tid in helpers)
    text = find_text("io", worker.dir_fd)
    io = parse_fields(text.encode()) if text else {}
    return Work(
        messages=max((calls for calls, _ in counted), default=-1),
        message_bytes=max((size for _, size in counted), default=-1),
        cpu_ns=cpu_ns,
        queued_ns=queued_ns,
        helper_cpu_ns=helper_ns,
        read_bytes=io.get("rchar", -1),
        disk_bytes=io.get("read_bytes", -1),
        read_calls=io.get("syscr", -1),
        faults=worker.stat.major_faults,
    )


def count_messages(before: tuple[int, int], after: tuple[int, int]) -> int:
    """Messages between two looks at a thread that writes them: large ones take two calls."""
    calls, size = after[0] - before[0], after[1] - before[1]
    if calls <= 0:
        return 0
    return round(calls / 2) if size / calls > LARGE_MESSAGE_BYTES / 2 else calls
