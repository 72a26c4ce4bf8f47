"""Many runs: what each leaves in a store for all, and what they come to together.

`FleetRun` is a row of the store's Parquet files, `FleetLosses` the JSON of `fuelline fleet --json`.
New fields go last with a default: a store holds rows of every release.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

FLEET_VERSION = 1
START_UP = "start-up"
"""The code of time before the first step, beside the codes of rules."""
EVERY_CHIP = "*"
"""The name of a price that holds for all chips."""

Grouping = Literal["cause", "user", "job", "host", "chip"]
GaugeKind = Literal["read latency", "read rate", "network rate", "link width"]
"""What tells a bad host from its peers. read latency: of a call, seconds; rates: bytes/s; link
width: of what device and slot can do."""
LOWER_IS_BETTER: frozenset[GaugeKind] = frozenset({"read latency"})


class FleetCause(Struct, frozen=True, kw_only=True):
    """One thing that accelerators waited for in a run."""

    code: str
    title: str
    lost_seconds: float
    """Of each accelerator."""


class FleetGauge(Struct, frozen=True, kw_only=True):
    """How fast something of the host was for this run."""

    kind: GaugeKind
    place: str
    """A mount, a device; empty for the network between ranks."""
    value: float


class FleetRun(Struct, frozen=True, kw_only=True):
    """What a run leaves in the store: who, what, where, and what it came to."""

    run_id: str
    job: str
    """Its script or module."""
    user: str
    host: str
    batch_id: str = ""
    """Of the batch system: Slurm's job id; empty where there is none."""
    chip: str = ""
    """As its driver names it; empty for a run without an accelerator."""
    devices: int = 1
    """Accelerators, or ranks where none could be asked: what the lost seconds are multiplied by."""
    started_s: float
    """By the wall clock, since 1970."""
    seconds: float
    """From its start to its end."""
    exit_code: int | None = None
    code: str = ""
    """Of the verdict; empty if there was none."""
    title: str
    causes: list[FleetCause] = field(default_factory=list)
    """Start-up, and what its findings cost; together at most `seconds`."""
    samples_per_s: float | None = None
    advice: str = ""
    """What to change first, to be written or typed."""
    gain: float | None = None
    """Of the speed, predicted or measured; null if it is not known."""
    gain_low: float | None = None
    gain_high: float | None = None
    joules: float | None = None
    """All its accelerators drew; null where no power was read."""
    rungs: dict[str, float] = field(default_factory=dict)
    """The utilisation ladder, mean over its accelerators: rungs that were measured."""
    gauges: list[FleetGauge] = field(default_factory=list)
    fuelline_version: str = ""


class FleetGroup(Struct, frozen=True, kw_only=True):
    """Runs that have something in common, or one cause in all runs."""

    name: str
    title: str = ""
    """Of a cause, its plain title; of other groups the cause that costs most in them."""
    runs: int
    device_hours: float
    """Paid for; of a cause, those of the runs that it shows up in."""
    lost_hours: float
    """Of these, accelerators waited."""
    lost_usd: float | None = None
    """Null if any of these hours has no price."""


class FleetJob(Struct, frozen=True, kw_only=True):
    """A job, all its runs together, and what to change in it."""

    job: str
    user: str
    chip: str
    runs: int
    device_hours: float
    lost_hours: float
    title: str
    """Of the cause that costs most."""
    newest: str
    """Its newest run with advice, else its newest."""
    advice: str = ""
    gain: float | None = None
    saved_hours: float
    """By the advice if its gain is known, else at most, by removing the cause."""
    saved_usd: float | None = None
    is_bound: bool = False
    """Whether `saved_hours` is only what it is at most."""


class FleetWeek(Struct, frozen=True, kw_only=True):
    """Seven days of all runs."""

    starts: str
    """The Monday."""
    runs: int
    device_hours: float
    lost_hours: float


class FleetRegression(Struct, frozen=True, kw_only=True):
    """A job whose newest run is slower than its earlier ones allow for."""

    job: str
    user: str
    chip: str
    run: str
    samples_per_s: float
    usual: float
    """Mean of the earlier runs, in logarithms."""
    lowest_usual: float
    """Lower end of what a further run may have, so chosen that of all jobs one in a hundred answers
    names one without a reason."""
    earlier: int


class FleetHost(Struct, frozen=True, kw_only=True):
    """A host on which something is slower than for the same jobs on others."""

    host: str
    kind: GaugeKind
    place: str
    times_worse: float
    low: float
    """Lower end of its interval, so chosen that one answer in a hundred names a host without a
    reason."""
    runs: int
    peers: int
    """Hosts that it was compared with."""


class FleetLosses(Struct, frozen=True, kw_only=True):
    """All runs of a store, or of its last days."""

    schema_version: int = FLEET_VERSION
    fuelline_version: str = ""
    store: str
    since_s: float | None = None
    runs: int
    device_hours: float
    lost_hours: float
    lost_usd: float | None = None
    lost_joules: float | None = None
    """Of runs whose power was read: in proportion to the time that was lost."""
    by: Grouping
    groups: list[FleetGroup] = field(default_factory=list)
    jobs: list[FleetJob] = field(default_factory=list)
    """The ten that would gain most."""
    weeks: list[FleetWeek] = field(default_factory=list)
    regressions: list[FleetRegression] = field(default_factory=list)
    hosts: list[FleetHost] = field(default_factory=list)
    unpriced: list[str] = field(default_factory=list)
    """Chips without a price, if any price was given."""
    skipped: list[str] = field(default_factory=list)
    """Files of the store that could not be read."""
