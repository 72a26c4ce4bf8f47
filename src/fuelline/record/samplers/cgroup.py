"""The cgroups that the job is in, v1 and v2: where they are, and their counters.

A limit may sit on any ancestor, so all groups up to the mount's root are looked at. The job may
move to another group while it runs; its processes' memberships are read again each time, and a
counter that changes group is shifted so that it goes on from where it was: differences of what we
write are what happened to the job, never the distance between two groups.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fuelline.record.samplers.host import PRESSURES, parse_psi
from fuelline.record.samplers.mounts import Mount
from fuelline.record.samplers.procfs import find_text, parse_fields

V2 = ""
"""The name of the unified hierarchy in the same place where v1 has a controller's name."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One cgroup directory of one hierarchy."""

    controller: str
    """`cpu`, `memory`, `blkio`, `cpuset`, ... for v1; `V2` for the unified hierarchy."""
    root: str
    """Where the hierarchy is mounted."""
    path: str
    """The directory of this group, at or below `root`."""

    @property
    def lineage(self) -> list[str]:
        """Directories from this group up to the root."""
        found = [self.path]
        while found[-1] != self.root and found[-1].startswith(self.root + "/"):
            found.append(found[-1].rpartition("/")[0])
        return found

    @property
    def is_root(self) -> bool:
        """The root group is the whole machine (or container) and has no limits of its own."""
        return self.path == self.root


def find_groups(membership: str, mounts: Iterable[Mount]) -> list[ControlGroup]:
    """Match lines of /proc/PID/cgroup, `4:memory:/jobs/a` and `0::/jobs/a`, with their mounts."""
    roots = {name: mount for mount in mounts for name in _list_controllers(mount)}
    groups = []
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            mount = roots.get(controller)
            if mount is not None and not path.startswith("/.."):
                groups.append(ControlGroup(controller, mount.point, _place_below(mount, path)))
    return groups


def _list_controllers(mount: Mount) -> list[str]:
    if mount.fstype == "cgroup2":
        return [V2]
    return mount.options.split(",") if mount.fstype == "cgroup" else []


def _place_below(mount: Mount, path: str) -> str:
    """A container may mount only its part of the hierarchy: then the mount's root is taken off."""
    below = path.removeprefix(mount.root) if mount.root != "/" else path
    return (mount.point + "/" + below.strip("/")).rstrip("/")


def keep_leaves(groups: Iterable[ControlGroup]) -> frozenset[ControlGroup]:
    """Without groups that hold another one of the list: their counters include it already."""
    found = frozenset(groups)
    above = {(each.controller, path) for each in found for path in each.lineage[1:]}
    return frozenset(each for each in found if (each.controller, each.path) not in above)


class GroupCounters:
    """Cumulative counters and gauges of the groups that the job is in."""

    def __init__(self) -> None:
        self._groups: frozenset[ControlGroup] = frozenset()
        self._shift: dict[str, float] = {}
        self._written: dict[str, float] = {}

    def read(self, groups: Iterable[ControlGroup]) -> Iterator[tuple[str, float]]:
        """All values of `groups`, summed where the job is in several groups of one controller."""
        now = keep_leaves(groups)
        gauges, counters = _sum_values(now)
        if now != self._groups:
            self._groups = now
            for name, value in counters.items():
                self._shift[name] = self._written.get(name, value) - value
        yield from gauges.items()
        for name, value in counters.items():
            self._written[name] = value + self._shift.get(name, 0)
            yield name, self._written[name]


def _sum_values(groups: Iterable[ControlGroup]) -> tuple[dict[str, float], dict[str, float]]:
    gauges: dict[str, float] = {}
    counters: dict[str, float] = {}
    for group in groups:
        for name, value in _read_group(group):
            values = gauges if name.endswith("usage_bytes") else counters
            values[name] = values.get(name, 0) + value
    return gauges, counters


def _read_group(group: ControlGroup) -> Iterator[tuple[str, float]]:
    if group.controller in {V2, "cpu"}:
        yield from _read_throttling(group)
    if group.controller in {V2, "memory"} and not group.is_root:
        yield from _read_memory(group)
    if group.controller == "blkio" and not group.is_root:
        yield from _read_blkio(group.path)
    if group.controller == V2 and not group.is_root:
        yield from _read_io_stat(group.path)
        for pressure in PRESSURES:
            content = (find_text(f"{group.path}/{pressure}.pressure") or "").encode()
            yield from parse_psi(content, f"cgroup.psi.{pressure}")


def _read_throttling(group: ControlGroup) -> Iterator[tuple[str, float]]:
    """Throttling is counted where the quota is set, which may be any ancestor."""
    for directory in group.lineage:
        fields = parse_fields((find_text(f"{directory}/cpu.stat") or "").encode())
        if not fields.get("nr_periods"):
            continue
        throttled_us = fields.get("throttled_usec", fields.get("throttled_time", 0) / 1000)
        yield "cgroup.cpu.periods", fields["nr_periods"]
        yield "cgroup.cpu.throttled_periods", fields.get("nr_throttled", 0)
        yield "cgroup.cpu.throttled_us", throttled_us


def _read_memory(group: ControlGroup) -> Iterator[tuple[str, float]]:
    is_v2 = group.controller == V2
    usage = find_number(f"{group.path}/memory.{'current' if is_v2 else 'usage_in_bytes'}")
    if usage is not None:
        yield "cgroup.memory.usage_bytes", usage
    hits = [_count_limit_hits(directory, is_v2=is_v2) for directory in group.lineage]
    if any(count is not None for count in hits):
        yield "cgroup.memory.limit_hits", sum(count for count in hits if count is not None)
    fields = parse_fields((find_text(f"{group.path}/memory.stat") or "").encode())
    refaults = fields.get("workingset_refault_file", fields.get("workingset_refault"))
    if refaults is not None:
        yield "cgroup.memory.refault_file_pages", refaults
    if "pgmajfault" in fields:
        yield "cgroup.memory.major_faults", fields["pgmajfault"]


def _count_limit_hits(directory: str, *, is_v2: bool) -> float | None:
    if not is_v2:
        return find_number(f"{directory}/memory.failcnt")
    events = parse_fields((find_text(f"{directory}/memory.events") or "").encode())
    return events["max"] + events.get("high", 0) if "max" in events else None


def _read_blkio(directory: str) -> Iterator[tuple[str, float]]:
    """Parse `254:0 Read 1048576` of the two throttle tables, which count without a limit too."""
    for table, unit in (("io_service_bytes", "bytes"), ("io_serviced", "operations")):
        text = find_text(f"{directory}/blkio.throttle.{table}_recursive") or ""
        for line in text.splitlines():
            words = line.split()
            if len(words) == 3 and words[1] in {"Read", "Write"}:
                yield f"cgroup.io.{words[0]}.{words[1].lower()}_{unit}", int(words[2])


_IO_STAT = {
    "rbytes": "read_bytes",
    "wbytes": "write_bytes",
    "rios": "read_operations",
    "wios": "write_operations",
}


def _read_io_stat(directory: str) -> Iterator[tuple[str, float]]:
    """Parse `254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0`."""
    for line in (find_text(f"{directory}/io.stat") or "").splitlines():
        device, *fields = line.split()
        for field in fields:
            name, _, value = field.partition("=")
            if name in _IO_STAT:
                yield f"cgroup.io.{device}.{_IO_STAT[name]}", int(value)


def find_number(path: str) -> int | None:
    """The single number in a file; None if it says `max`, or is not there."""
    text = (find_text(path) or "").strip()
    return int(text) if text.lstrip("-").isdigit() else None
