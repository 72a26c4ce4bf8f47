"""What the job may use: cores, quota, memory and I/O limits, the tightest of all that apply."""

import os
from collections.abc import Iterable, Iterator

from fuelline.record.samplers.cgroup import V2, ControlGroup, find_number
from fuelline.record.samplers.host import allowed_cpus
from fuelline.record.samplers.procfs import find_text
from fuelline.schema.run.samples import Limits

_NO_LIMIT_BYTES = 1 << 60
"""cgroup v1 says "no limit" with a number close to 2^63."""
_V1_THROTTLES = ("read_bps", "read_iops", "write_bps", "write_iops")
_V2_NAMES = {"rbps": "read_bps", "riops": "read_iops", "wbps": "write_bps", "wiops": "write_iops"}


def read_limits(now_ns: int, pids: Iterable[int], groups: Iterable[ControlGroup]) -> Limits:
    """The limits of these processes."""
    directories = [(group.controller, path) for group in groups for path in group.lineage]
    return Limits(
        at_ns=now_ns,
        cpus_allowed=count_allowed(pids),
        host_cpus=os.cpu_count() or 0,
        quota_cores=min(_list_quotas(directories), default=None),
        memory_limit_bytes=min(_list_memory_limits(directories), default=None),
        io_limits=_merge(_list_io_limits(directories)),
    )


def count_allowed(pids: Iterable[int]) -> int:
    """Cores that any of them may use: workers may be bound to one each, and the job has all."""
    return len(frozenset[int]().union(*map(allowed_cpus, pids)))


def _list_quotas(directories: Iterable[tuple[str, str]]) -> Iterator[float]:
    for controller, path in directories:
        if controller == "cpu":
            quota = find_number(f"{path}/cpu.cfs_quota_us")
            period = find_number(f"{path}/cpu.cfs_period_us")
            if quota is not None and period and quota > 0:
                yield quota / period
        elif controller == V2:
            words = (find_text(f"{path}/cpu.max") or "").split()
            if len(words) == 2 and words[0] != "max":
                yield int(words[0]) / int(words[1])


def _list_memory_limits(directories: Iterable[tuple[str, str]]) -> Iterator[int]:
    files = {"memory": ("memory.limit_in_bytes",), V2: ("memory.max", "memory.high")}
    for controller, path in directories:
        for file in files.get(controller, ()):
            limit = find_number(f"{path}/{file}")
            if limit is not None and 0 <= limit < _NO_LIMIT_BYTES:
                yield limit


def _list_io_limits(directories: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, float]]:
    """Triples of device, limit and value."""
    for controller, path in directories:
        if controller == "blkio":
            for name in _V1_THROTTLES:
                yield from _parse_throttle(name, f"{path}/blkio.throttle.{name}_device")
        elif controller == V2:
            yield from parse_io_max(find_text(f"{path}/io.max") or "")


def _parse_throttle(name: str, path: str) -> Iterator[tuple[str, str, float]]:
    """Parse `254:0 10485760`."""
    for line in (find_text(path) or "").splitlines():
        device, _, value = line.partition(" ")
        if value.strip().isdigit():
            yield device, name, int(value)


def parse_io_max(text: str) -> Iterator[tuple[str, str, float]]:
    """Parse `254:0 rbps=10485760 wbps=max riops=50 wiops=max`."""
    for line in text.splitlines():
        device, *fields = line.split()
        for field in fields:
            name, _, value = field.partition("=")
            if name in _V2_NAMES and value.isdigit():
                yield device, _V2_NAMES[name], int(value)


def _merge(limits: Iterable[tuple[str, str, float]]) -> dict[str, dict[str, float]]:
    merged: dict[str, dict[str, float]] = {}
    for device, name, value in limits:
        known = merged.setdefault(device, {})
        known[name] = min(value, known.get(name, value))
    return merged
