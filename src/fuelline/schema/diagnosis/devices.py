"""What is known about each accelerator of a job: for rules, and as `devices` of the diagnosis.

The utilisation ladder goes from what is paid for to what is useful. Each rung is a share of the
time that the device was allocated, so that the step from one rung to the next is what gets lost
there. A rung that was not measured is Missing with the way to see it, never zero.
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct, field

from fuelline.schema.parts import LedgerPart  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.readings import Missing, Signal
from fuelline.schema.run.trace import TraceRung

RecordedRung = Literal[
    "allocated",
    "job alive",
    "reported utilisation",
    "kernels resident",
    "SMs active",
    "tensor cores active",
    "MFU",
]
"""allocated: from the start of the run to its end. job alive: a process of the job is on the
device. reported utilisation: what nvidia-smi shows, some kernel was there in a sampling period.
kernels resident: the same, measured by counters. SMs active: share of the chip's cores with work.
MFU: useful floating-point operations over the chip's peak."""
RUNGS: tuple[RecordedRung, ...] = get_args(RecordedRung)
RungName = RecordedRung | TraceRung

_NOT_READ = Missing(reason="not read")


class Rung(Struct, frozen=True, kw_only=True):
    """One step of the ladder."""

    rung: RungName
    share: Signal
    usd: float | None = None
    """What was paid for the time that reached this rung; null without a price or a share."""


class DeviceFacts(Struct, frozen=True, kw_only=True):
    """One accelerator: readings over the window, rungs over the run."""

    device: str
    """`gpu3`, or `gpu0.mig1` for a slice."""
    name: str
    vendor: str = ""
    uuid: str = ""
    pids: list[int] = field(default_factory=list)
    """Processes of the job on it; empty if that cannot be seen."""
    seconds: float = 0.0
    """How long it was allocated: the length of the run."""
    ladder: dict[RungName, float | None] = field(default_factory=dict)
    """Rung to share; null where it is unknown."""
    rungs: list[Rung] = field(default_factory=list)
    """The same with doubt, reasons and money, in order."""
    utilisation: Signal = _NOT_READ
    """Some kernel was resident. High says little; low says that it waits."""
    memory_share: Signal = _NOT_READ
    """Of its memory: in use, by anyone."""
    occupancy: Signal = _NOT_READ
    """Warps over what the SMs can hold."""
    dram_share: Signal = _NOT_READ
    """Of the memory bandwidth: in use. Near 1 with idle tensor cores: bandwidth-bound."""
    nvlink_bytes_per_s: Signal = _NOT_READ
    clock_share: Signal = _NOT_READ
    """SM clock over its maximum."""
    power_share: Signal = _NOT_READ
    """Power over what it may draw."""
    power_cap_share: Signal = _NOT_READ
    """What it may draw over the factory's setting; below 1 someone has lowered it."""
    temperature_celsius: Signal = _NOT_READ
    """Highest in the window."""
    thermal_share: Signal = _NOT_READ
    """Of the window: clock held down because it is hot; likewise the next two."""
    power_limited_share: Signal = _NOT_READ
    hardware_share: Signal = _NOT_READ
    """By the board itself: an external brake, a power supply that cannot keep up."""
    throttled_clock: Signal = _NOT_READ
    """Clock while held down over that of its like when free; 1 means it costs nothing."""
    link_share: Signal = _NOT_READ
    """Bandwidth of the PCIe link as trained, while busy, over what device and slot can do."""
    link_text: str | None = None
    """`PCIe 5 x4 of 5 x16`."""
    link_use: Signal = _NOT_READ
    """Traffic over what the link carries now, in the busier direction."""
    replays_per_min: Signal = _NOT_READ
    """PCIe packets that had to be sent again."""
    ecc_uncorrected: Signal = _NOT_READ
    """Memory errors since the driver was loaded that could not be corrected."""
    rows_pending: Signal = _NOT_READ
    """1 if bad memory waits for a reset to be taken out of use."""
    rows_failed: Signal = _NOT_READ
    """1 if bad memory can no longer be replaced."""
    nvlink_errors: Signal = _NOT_READ
    """Replays and recoveries of NVLink during the run."""
    nvlink_crc_per_s: Signal = _NOT_READ
    is_lost: bool = False
    """The driver lost it during the run: it fell off the bus, or needs a reset."""
    lost_share: Signal = _NOT_READ
    """Of the window: after that moment; 0 if it was not lost or the job ended with it."""
    rank: int | None = None
    """Of the trace that it was seen in; null for recorded runs, which have processes instead."""
    ledger: dict[LedgerPart, float] = field(default_factory=dict)
    """Part to share of wall, summing to 1. Imported traces only."""

    def share_of(self, name: RungName) -> Signal:
        """One rung of the ladder."""
        return next((each.share for each in self.rungs if each.rung == name), _NOT_READ)


class EnergyFacts(Struct, frozen=True, kw_only=True):
    """What the job's accelerators and their host drew in the window."""

    watts: Signal = _NOT_READ
    """Mean power of all accelerators of the job on this host."""
    least_watts: Signal = _NOT_READ
    """The least that they were seen to draw in the run: idle ones draw about that."""
    joules_per_step: Signal = _NOT_READ
    joules_per_sample: Signal = _NOT_READ
    host_watts: Signal = _NOT_READ
    """Mean power of the host's processors (RAPL), whoever used them."""
