"""Cores and memory: what this process may use, and whether more threads really do more."""

from __future__ import annotations

import ctypes
import hashlib
import os
from time import monotonic_ns
from typing import TYPE_CHECKING

from fuelline.probe.pace import time_rate_of_cores, time_rate_of_threads
from fuelline.record.samplers.cgroup import find_groups
from fuelline.record.samplers.limits import read_limits
from fuelline.record.samplers.mounts import parse_mountinfo
from fuelline.record.samplers.procfs import find_text
from fuelline.schema.diagnosis.ceilings import Ceiling
from fuelline.schema.readings import Missing, Reading, Signal, value_of

if TYPE_CHECKING:
    from collections.abc import Callable

COPY_BYTES = 64 << 20
"""Beyond the last-level cache of most hosts, so that memory is measured."""
HASH_BYTES = 1 << 20


def probe_cores(seconds: float) -> list[Ceiling]:
    """Cores that may be used, and how work scales over them."""
    usable = count_cores()
    threads = max(1, round(usable))
    one, many = _hash_rate(1, seconds), _hash_rate(threads, seconds)
    return [
        _ceiling("cores", "usable", "cores that a job here may use", _plain(usable, "cores")),
        _ceiling(
            "cores", "scaling", f"work done by {threads} threads against one", _ratio(many, one)
        ),
    ]


def count_cores() -> float:
    """By affinity and the quotas of all cgroups above."""
    pid = os.getpid()
    mounts = parse_mountinfo(find_text(f"/proc/{pid}/mountinfo") or "")
    membership = find_text(f"/proc/{pid}/cgroup") or ""
    limits = read_limits(monotonic_ns(), [pid], find_groups(membership, mounts))
    allowed = float(limits.cpus_allowed or os.cpu_count() or 1)
    return min(allowed, limits.quota_cores) if limits.quota_cores else allowed


def probe_memory(seconds: float) -> list[Ceiling]:
    """Copying within memory, by one thread and by all cores; a copy reads and writes each byte.

    In seconds of a core, which include those that it waits for memory: other processes that want
    the cores as well do not make the memory look slower.
    """
    threads = max(1, round(count_cores()))
    found = [_ceiling("memory", "copy_1", "memory copied, one thread", _copy_rate(1, seconds))]
    if threads > 1:
        what = f"memory copied, {threads} threads"
        found.append(_ceiling("memory", f"copy_{threads}", what, _copy_rate(threads, seconds)))
    return found


def _hash_rate(threads: int, seconds: float) -> Signal:
    block = bytes(HASH_BYTES)  # hashlib releases the interpreter's lock for blocks this large

    def act() -> float:
        hashlib.sha256(block)
        return float(HASH_BYTES)

    return time_rate_of_threads([act] * threads, seconds, "bytes/s", "probe cores")


def _copy_rate(threads: int, seconds: float) -> Signal:
    size_bytes = COPY_BYTES // threads
    acts = [_copier(size_bytes) for _ in range(threads)]
    return time_rate_of_cores(acts, seconds, "bytes/s", "probe memory")


def _copier(size_bytes: int) -> Callable[[], float]:
    source, target = (
        ctypes.create_string_buffer(size_bytes),
        ctypes.create_string_buffer(size_bytes),
    )
    move = ctypes.CDLL(None).memmove  # a plain function of C: without the interpreter's lock
    move.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    move.restype = ctypes.c_void_p
    move(target, source, size_bytes)  # pages come into being when they are first touched

    def act() -> float:
        move(target, source, size_bytes)
        return float(size_bytes)

    return act


def _ratio(many: Signal, one: Signal) -> Signal:
    top, bottom = value_of(many), value_of(one)
    if top is None or not bottom:
        return Missing(reason="no work could be timed")
    return _plain(top / bottom, "cores")


def _plain(value: float, unit: str) -> Reading:
    return Reading(value=value, unit=unit, origin="probe cores")


def _ceiling(group: str, name: str, what: str, signal: Signal) -> Ceiling:
    return Ceiling(group=group, name=name, what=what, signal=signal)
