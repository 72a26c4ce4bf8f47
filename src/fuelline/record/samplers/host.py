"""Counters of the whole machine, once a second: pressure, CPU, memory, disks, network, NFS.

Each source is one generator of (name, value) over kept descriptors; a source that the kernel does
not have is left out. Only values that changed since the last sample are written: absent means
unchanged. Counters are cumulative; gauges of memory are rounded to 1 MiB to keep recordings small.

Also here: network counters of ranks that live in a network namespace of their own, as in a
container.

The host's counters do not show their traffic. Everyone else's is among the host's, so nothing is
read twice: one rank speaks for a namespace.

Also here: NFS per mount and operation, from /proc/self/mountstats.

Sample of the input, one block a mount, then one line per operation with operations, transmissions,
timeouts, bytes sent, bytes received, queue ms, round-trip ms, execution ms, errors:

    device server:/export mounted on /data with fstype nfs4 statvers=1.1
            READ: 1201 1201 0 249808 157447040 12 5120 5190 0
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.record.samplers.procfs import (
    NS_PER_TICK,
    find_field,
    find_text,
    open_kept,
    read_kept,
    read_kept_whole,
)
from fuelline.schema.run.samples import HostSample

if TYPE_CHECKING:
    from collections.abc import Iterator


Values = Iterable[tuple[str, float]]
Parse = Callable[[bytes], Values]

SLOW_EVERY = 2
"""Turns between two readings of what is long to read and slow to change."""
POWERCAP = Path("/sys/class/powercap")
SECTOR_BYTES = 512
"""The unit of diskstats whatever the device says (Documentation/admin-guide/iostats.rst)."""
_MIB = 1024 * 1024
_VMSTAT = {
    "workingset_refault_file": "memory.refault_file_pages",
    "workingset_refault ": "memory.refault_file_pages",
    "pgmajfault": "memory.major_faults",
    "pgpgin": "memory.paged_in_kb",
    "pgpgout": "memory.paged_out_kb",
    "pswpin": "memory.swapped_in_pages",
    "pswpout": "memory.swapped_out_pages",
    "pgscan_direct ": "memory.direct_scan_pages",
    "pgscan_kswapd ": "memory.background_scan_pages",
}
_MEMINFO = {
    "MemAvailable:": "memory.available_bytes",
    "Cached:": "memory.cached_bytes",
    "Dirty:": "memory.dirty_bytes",
}
_DISK_FIELDS = (
    ("reads", 3, 1),
    ("read_bytes", 5, SECTOR_BYTES),
    ("read_ms", 6, 1),
    ("writes", 7, 1),
    ("write_bytes", 9, SECTOR_BYTES),
    ("write_ms", 10, 1),
    ("inflight", 11, 1),
    ("busy_ms", 12, 1),
    ("weighted_ms", 13, 1),
)
_NET_FIELDS = (
    ("rx_bytes", 0),
    ("rx_errors", 2),
    ("rx_dropped", 3),
    ("tx_bytes", 8),
    ("tx_errors", 10),
    ("tx_dropped", 11),
)


class HostCounters:
    """Reads the machine's counters and gives what changed."""

    def __init__(self, allowed_cpus: Iterable[int], *, has_nfs: bool) -> None:
        self._last: dict[str, float] = {}
        self.allowed_cpus = frozenset(allowed_cpus)
        sources: list[tuple[str, Parse]] = [
            *((f"/proc/pressure/{name}", _psi_parser(f"psi.{name}")) for name in PRESSURES),
            ("/proc/stat", lambda content: parse_cpu(content, self.allowed_cpus)),
            ("/proc/loadavg", _parse_load),
            ("/proc/diskstats", parse_disks),
        ]
        slow_sources: list[tuple[str, Parse]] = [
            ("/proc/meminfo", _parse_meminfo),
            ("/proc/vmstat", _parse_vmstat),
            ("/proc/net/dev", parse_network),
            ("/proc/net/snmp", parse_tcp),
        ]
        sources += list_packages()
        if has_nfs:
            slow_sources.append(("/proc/self/mountstats", parse_mountstats))
        self._stat_fd = open_kept("/proc/stat")
        self._sources = _open_those_there(sources)
        self._slow_sources = _open_those_there(slow_sources)
        self._turn = 0

    def sample(self, now_ns: int, more: Values = ()) -> HostSample:
        """What changed since the last call, `more` values from elsewhere included."""
        changed = {name: value for name, value in self._read(more) if self._is_news(name, value)}
        return HostSample(now_ns, changed)

    def read_busy_ns(self) -> float:
        """Busy time of all cores at this moment."""
        first_line = read_kept(self._stat_fd).partition(b"\n")[0]
        return dict(parse_cpu(first_line, frozenset()))["cpu.busy_ns"]

    def _read(self, more: Values) -> Iterator[tuple[str, float]]:
        self._turn += 1
        is_slow_turn = self._turn % SLOW_EVERY == 1
        for fd, parse in self._sources + (self._slow_sources if is_slow_turn else []):
            yield from parse(_read_if_on(fd))
        yield from more

    def _is_news(self, name: str, value: float) -> bool:
        if self._last.get(name) == value:
            return False
        self._last[name] = value
        return True


def list_packages(folder: Path = POWERCAP) -> list[tuple[str, Parse]]:
    """Energy counters of the host's processors (RAPL), of those that may be read."""
    packages = sorted(folder.glob("intel-rapl:[0-9]*"))
    return [
        (str(each / "energy_uj"), _energy_parser(each, number))
        for number, each in enumerate(each for each in packages if each.name.count(":") == 1)
        if os.access(each / "energy_uj", os.R_OK)
    ]


def _energy_parser(package: Path, number: int) -> Parse:
    """The counter runs over every few minutes; what is given only grows."""
    try:
        most_uj = int((package / "max_energy_range_uj").read_text())
    except (OSError, ValueError):
        most_uj = 0
    last_uj, turns = 0, 0

    def parse(content: bytes) -> Values:
        nonlocal last_uj, turns
        if content.strip().isdigit():
            now_uj = int(content)
            turns += now_uj < last_uj
            last_uj = now_uj
            yield f"energy.package{number}_joules", (turns * most_uj + now_uj) / 1e6

    return parse


PRESSURES = ("cpu", "io", "memory")


def parse_psi(content: bytes, prefix: str) -> Values:
    """Parse `some avg10=0.00 avg60=0.00 avg300=0.00 total=123` to `{prefix}.some_us`."""
    for line in content.splitlines():
        kind, _, rest = line.partition(b" ")
        _, _, total = rest.rpartition(b"total=")
        if total.isdigit():
            yield f"{prefix}.{kind.decode()}_us", int(total)


def _psi_parser(prefix: str) -> Parse:
    return lambda content: parse_psi(content, prefix)


def parse_cpu(content: bytes, allowed: frozenset[int]) -> Values:
    """Parse `cpu3 user nice system idle iowait irq softirq steal ...`; guests are part of user.

    `cpu.*` is the whole machine, `cpu_allowed.*` the cores that the job may use.
    """
    allowed_ticks = [0, 0, 0, 0]
    for line in content.splitlines():
        if not line.startswith(b"cpu"):
            break
        name, *fields = line.split()
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, fields[:8])
        ticks = (user + nice + system + irq + softirq, idle, iowait, steal)
        if name == b"cpu":
            yield from _name_cpu("cpu", ticks)
        elif int(name[3:]) in allowed:
            allowed_ticks = [a + b for a, b in zip(allowed_ticks, ticks, strict=True)]
    yield from _name_cpu("cpu_allowed", allowed_ticks)


def _name_cpu(prefix: str, ticks: Iterable[int]) -> Values:
    for name, count in zip(("busy", "idle", "iowait", "steal"), ticks, strict=True):
        yield f"{prefix}.{name}_ns", count * NS_PER_TICK


def _parse_load(content: bytes) -> Values:
    """Parse `0.5 0.4 0.3 2/345 6789`: threads that run or want to, ourselves included."""
    words = content.split()
    if len(words) > 3:
        yield "load.runnable_threads", int(words[3].partition(b"/")[0])


def _parse_meminfo(content: bytes) -> Values:
    for field, name in _MEMINFO.items():
        value_kb = find_field(content, field)
        if value_kb is not None:
            yield name, value_kb * 1024 // _MIB * _MIB


def _parse_vmstat(content: bytes) -> Values:
    for field, name in _VMSTAT.items():
        value = find_field(content, field)
        if value is not None:
            yield name, value


def parse_disks(content: bytes) -> Values:
    """Parse `254 0 vda 10685 5866 2464842 13142 ...`: whole devices that were ever used."""
    for line in content.splitlines():
        fields = line.split()
        if len(fields) < 14 or not _is_real_disk(fields):
            continue
        prefix = f"disk.{fields[0].decode()}:{fields[1].decode()}"
        for name, index, unit in _DISK_FIELDS:
            yield f"{prefix}.{name}", int(fields[index]) * unit


def _is_real_disk(fields: list[bytes]) -> bool:
    if fields[2].startswith((b"loop", b"ram", b"zram", b"fd", b"sr")):
        return False
    was_used = fields[3] != b"0" or fields[7] != b"0"
    return was_used and not _is_partition(f"{fields[0].decode()}:{fields[1].decode()}")


@lru_cache(maxsize=256)
def _is_partition(number: str) -> bool:
    return Path(f"/sys/dev/block/{number}/partition").exists()


def parse_network(content: bytes) -> Values:
    """Parse `eth0: rx_bytes packets errs drop ... tx_bytes packets errs drop ...`, `lo` too."""
    for line in content.splitlines()[2:]:
        name, _, rest = line.rpartition(b":")
        fields = rest.split()
        if len(fields) < 12 or fields[0] == fields[8] == b"0":
            continue
        for field, index in _NET_FIELDS:
            yield f"net.{name.strip().decode('utf-8', 'replace')}.{field}", int(fields[index])


def parse_tcp(content: bytes) -> Values:
    """Two lines begin with `Tcp:`: names, then values."""
    lines = [line.split() for line in content.splitlines() if line.startswith(b"Tcp:")]
    if len(lines) == 2:
        values = dict(zip(*lines, strict=False))
        for field, name in ((b"RetransSegs", "retransmits"), (b"OutSegs", "sent_segments")):
            if field in values:
                yield f"net.tcp.{name}", int(values[field])


def _open_those_there(sources: list[tuple[str, Parse]]) -> list[tuple[int, Parse]]:
    return [(open_kept(path), parse) for path, parse in sources if Path(path).exists()]


def _read_if_on(fd: int) -> bytes:
    """The content; none if PSI is compiled in but switched off (EOPNOTSUPP)."""
    try:
        return read_kept_whole(fd)
    except OSError:
        return b""


def allowed_cpus(pid: int) -> frozenset[int]:
    """The cores that a process may run on; none if it has ended already."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except ProcessLookupError:
        return frozenset()


class NamespaceLinks:
    """Reads what the ranks' own namespaces sent and received."""

    def __init__(self) -> None:
        self._home = _namespace("self")

    def read(self, pids: Iterable[int]) -> Iterator[tuple[str, float]]:
        """Counters named `ns.<namespace>.net...`; nothing for ranks that share ours."""
        seen = {self._home, None}
        for pid in pids:
            namespace = _namespace(str(pid))
            if namespace in seen:
                continue
            seen.add(namespace)
            for table, parse in (("dev", parse_network), ("snmp", parse_tcp)):
                content = find_text(f"/proc/{pid}/net/{table}") or ""
                for name, value in parse(content.encode()):
                    yield f"ns.{namespace}.{name}", value


def _namespace(pid: str) -> int | None:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


OPERATIONS = frozenset({"READ", "GETATTR", "LOOKUP", "OPEN", "READDIR", "ACCESS", "WRITE"})


def parse_mountstats(content: bytes) -> Iterator[tuple[str, float]]:
    """Counters of NFS mounts: `nfs.{mount}.{OP}.ops`, `.received_bytes`, `.rtt_ms`, `.exe_ms`."""
    mount = ""
    for line in content.decode("utf-8", "replace").splitlines():
        words = line.split()
        if line.startswith("device "):
            mount = words[4] if len(words) > 7 and words[7].startswith("nfs") else ""
        elif mount and len(words) >= 9 and words[0].rstrip(":") in OPERATIONS:
            prefix = f"nfs.{mount}.{words[0].rstrip(':')}"
            yield f"{prefix}.ops", int(words[1])
            yield f"{prefix}.received_bytes", int(words[5])
            yield f"{prefix}.rtt_ms", int(words[7])
            yield f"{prefix}.exe_ms", int(words[8])
