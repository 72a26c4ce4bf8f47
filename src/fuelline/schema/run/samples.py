"""What the observer writes down: rows of its journal, one tagged struct a row.

The journal is append-only: frames of `<u32 length><u32 crc32>` and a MessagePack array of rows.
A frame that was cut off at the end is dropped when it is read. Times are CLOCK_MONOTONIC ns.
Counters are cumulative as the kernel gives them; differences are taken after `ingest`.
"""

from typing import Literal

from msgspec import Struct

JOURNAL_NAME = "observer.journal"

State = Literal[
    "running", "read", "metadata", "fault", "socket", "pipe", "lock", "sleep", "write", "other"
]
"""What a thread was doing at a sample.

`running` has a core or waits for one (schedstat says which). `read` and `write` are blocked on a
file; `metadata` in open, stat, getdents and the like; `fault` outside any system call, so in a page
fault; `socket` in any call on a socket; `pipe` on a pipe, eventfd or in poll over them; `lock` in
futex; `sleep` in nanosleep. `other` is blocked elsewhere.
"""


class ThreadState(Struct, frozen=True, array_like=True, gc=False, tag="state"):
    """How often one thread was seen in one state during one window, by the trainer's phase."""

    window_ns: int
    """Start of the window; windows are one second long."""
    pid: int
    tid: int
    phase: int
    """`wire.Phase` of the trainer that this process is or descends from; -1 if there is none."""
    state: str
    syscall: str
    """Name of the system call it was blocked in; empty when running or in a fault."""
    place: int
    """`Place.id` of what it was blocked on; 0 if unknown or none."""
    count: int


class Place(Struct, frozen=True, array_like=True, tag="place"):
    """A file, directory or socket that something was blocked on, with its mount."""

    id: int
    path: str
    """As seen; long lists of files are folded to their directory once there are many."""
    mount: str
    fstype: str
    device: str
    """major:minor of the mount."""


class ThreadClock(Struct, frozen=True, array_like=True, gc=False, tag="clock"):
    """schedstat of one thread, cumulative."""

    at_ns: int
    pid: int
    tid: int
    oncpu_ns: int
    runq_ns: int


class ProcessClock(Struct, frozen=True, array_like=True, gc=False, tag="io"):
    """Counters of one process of the job, cumulative; -1 where the kernel refused."""

    at_ns: int
    pid: int
    cpu_ns: int
    rchar_bytes: int
    disk_read_bytes: int
    read_calls: int
    wchar_bytes: int
    disk_write_bytes: int
    major_faults: int
    rss_bytes: int


class ProcessSeen(Struct, frozen=True, array_like=True, tag="process"):
    """A process of the job, when it was first seen."""

    at_ns: int
    pid: int
    ppid: int
    name: str
    started_ns: int = 0
    """When it started, by the kernel, to a hundredth of a second; 0 where it was not written."""


class HostSample(Struct, frozen=True, array_like=True, tag="host"):
    """Named values at one moment: cumulative counters and gauges of host and cgroup.

    Names are dotted paths with the unit last, for example `psi.io.some_us`, `cpu.busy_ns`,
    `cpu.others_ns`, `disk.254:0.read_bytes`, `disk.254:0.busy_ms`, `cgroup.cpu.throttled_us`,
    `memory.refault_file_pages`, `others.read_bytes`.
    """

    at_ns: int
    values: dict[str, float]


class StackSample(Struct, frozen=True, array_like=True, tag="stack"):
    """How often one Python stack was seen in one thread during a burst of stack sampling.

    Before the training begins, and in jobs that train nothing, a row is one stay in that stack: it
    was seen `count` times without another between, from `from_ns` to `until_ns`.
    """

    from_ns: int
    until_ns: int
    pid: int
    tid: int
    frames: list[str]
    """Outermost first, each `function (file:line)`."""
    count: int


class SourceLine(Struct, frozen=True, array_like=True, tag="source"):
    """The text of a line that a stack has shown, read when it was first seen."""

    file: str
    """As the frame names it."""
    line: int
    text: str
    """Without the white space around it, at most 200 characters."""


class OtherProcess(Struct, frozen=True, array_like=True, tag="other"):
    """A process outside the job that did noticeable work in an interval."""

    at_ns: int
    interval_ns: int
    pid: int
    name: str
    cpu_ns: int
    disk_read_bytes: int
    disk_write_bytes: int
    calls: int
    """Read and write calls together; -1 if the kernel refused."""
    place: int
    """`Place.id` where it was last seen blocked or working; 0 unknown."""
    blocked: int = 0
    """Its threads that were blocked on storage there at that moment."""


class Limits(Struct, frozen=True, array_like=True, tag="limits"):
    """What the job may use: affinity and cgroup limits; None where there is no limit."""

    at_ns: int
    cpus_allowed: int
    host_cpus: int
    quota_cores: float | None
    memory_limit_bytes: int | None
    io_limits: dict[str, dict[str, float]]
    """Device `major:minor` to {`read_bps`, `read_iops`, `write_bps`, `write_iops`} as set."""


class Blind(Struct, frozen=True, array_like=True, tag="blind"):
    """Something the observer could not see. Becomes a `Blindspot` of the recording."""

    what: str
    why: str
    forbids: str


class DeviceSeen(Struct, frozen=True, array_like=True, tag="device"):
    """An accelerator, or a MIG slice of one, and what it can show; a device's last row counts.

    None and an empty text are unknown.
    """

    at_ns: int
    device: str
    """`gpu0` as the management library counts; `gpu0.mig1` for a slice of it."""
    vendor: str
    name: str
    """As the driver says it, for example `NVIDIA H100 80GB HBM3`."""
    uuid: str = ""
    driver: str = ""
    parent: str = ""
    """Of a MIG slice: the device that it is part of; its power, clocks and link are that one's."""
    memory_bytes: int | None = None
    power_cap_watts: float | None = None
    """What it may draw now; below `power_default_watts` someone has lowered it."""
    power_default_watts: float | None = None
    sm_clock_max_hz: float | None = None
    pcie_generation_max: int | None = None
    """The most that device and slot can do together; likewise the width."""
    pcie_width_max: int | None = None
    refusals: dict[str, str] = {}
    """Kind of reading to why it cannot be had: `gpm`, `utilisation`, `processes` ..."""


class DeviceSample(Struct, frozen=True, array_like=True, tag="device_sample"):
    """Named values of one device: means over the last second, or cumulative counters.

    Names are dotted with the unit last: `util.gpu_frac`, `gpm.sm_frac`, `throttle.thermal_frac`,
    `power.draw_watts`, `clock.sm_hz`, `pcie.generation`, `ecc.uncorrected_count`. `job.frac` is
    1 while a process of the job is on the device, `lost` is 1 from when the driver lost it.
    """

    at_ns: int
    device: str
    values: dict[str, float]


class DeviceProcess(Struct, frozen=True, array_like=True, gc=False, tag="device_process"):
    """A process on a device, when it came and whenever its memory changed much."""

    at_ns: int
    device: str
    pid: int
    memory_bytes: int
    """-1 where the driver does not say; 0 when it has left."""
    of_job: bool


Row = (
    ThreadState
    | Place
    | ThreadClock
    | ProcessClock
    | ProcessSeen
    | HostSample
    | StackSample
    | OtherProcess
    | Limits
    | Blind
    | DeviceSeen
    | DeviceSample
    | DeviceProcess
    | SourceLine
)
