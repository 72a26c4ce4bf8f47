"""A running job from one look to the next: what a look brought, and what the screen shows of it.

`RunGrowth` is what was written to a run's folder since the last look: `ingest` reads it, `signals`
adds it up. `Snapshot` is the state at one moment: `report` draws it. A number that was not seen
(yet) is None and is drawn as a dash, never as zero.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct, field

from fuelline.schema.diagnosis.facts import PlaceFacts  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.run.recording import Blindspot, RunFacts  # noqa: TC001
from fuelline.schema.run.samples import Row, State

RunState = Literal["running", "ended", "lost", "elsewhere"]
"""lost: no process of it is left and nobody wrote down how it ended. elsewhere: it was started on
another host, so that only what it writes can be seen, not whether it lives."""


class LiveEvent(NamedTuple):
    """What is followed of a record; the kinds are those of `wire.Kind`.

    A tuple, because every record of a running job becomes one.
    """

    start_ns: int
    dur_ns: int
    owner: int
    """The source of a WAIT or SOURCE_START, the stepper of a STEP; of others it says nothing."""
    samples: int
    """In the batch of a WAIT, -1 if that is not known; of others it says nothing."""
    pause_kind: int
    """Of a PAUSE, as of `wire.PauseKind`; of others it says nothing."""
    position: int
    """In the epoch, of the batch of a WAIT: 0 is the first; of others it says nothing."""
    tid: int
    flags: int
    kind: int


class SourceWorker(Struct, frozen=True, kw_only=True):
    """A process that prepares batches, as its trainer told."""

    source_id: int
    worker_id: int
    pid: int


class SpoolGrowth(Struct, frozen=True, kw_only=True):
    """What one process wrote since the last look, and its live words of this moment."""

    pid: int
    phase: int
    trainer_tid: int
    """0: no thread of this process takes batches or trains."""
    stopped_errno: int
    """Not 0: nothing more is kept of this process."""
    is_alive: bool | None
    """None: the process cannot be seen from here."""
    is_counted: bool
    """Whether all that was written before the first look has been counted, too."""
    rank: int | None = None
    events: list[LiveEvent] = field(default_factory=list)
    """New ones, in the order of the file; the first look begins some seconds before its end."""
    past_steps: dict[int, int] = field(default_factory=dict)
    """Steps before those events by stepper id; only what was counted since the last look."""
    past_batches: int = 0
    workers: list[SourceWorker] = field(default_factory=list)


class RunGrowth(Struct, frozen=True, kw_only=True):
    """Everything that one look found."""

    run: RunFacts
    state: RunState
    now_ns: int
    """The moment of the look on the run's clock; of the last record if the run cannot be asked."""
    spools: list[SpoolGrowth] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    blindspots: list[Blindspot] = field(default_factory=list)
    """All that are known by now."""
    is_counted: bool = True
    """Whether nothing is left to be counted of what was written before the first look."""


class Share(Struct, frozen=True, kw_only=True):
    """A part of the last seconds."""

    part: str
    frac: float


WorkerState = Literal["running", "for core", "idle"] | State
"""What a thread that prepares batches does; the last are what it is blocked in."""


class WorkerRow(Struct, frozen=True, kw_only=True):
    """What one thread that prepares batches did in the last seconds."""

    pid: int
    worker_id: int | None
    """None: the training thread itself."""
    source_id: int = 0
    fetch_s: float | None = None
    """Mean duration of the fetches that ended in the last seconds."""
    mix: list[Share] = field(default_factory=list)
    """By `WorkerState`."""
    place: PlaceFacts | None = None
    """Where it was blocked most."""


class RankRow(Struct, frozen=True, kw_only=True):
    """One training process."""

    pid: int
    rank: int | None = None
    steps: int | None = None
    """Since the start; None until all that was written before we came has been counted."""
    step_kind: Literal["train", "batch"] = "train"
    """batch: no optimizer was seen, so batches are counted."""
    steps_per_s: float | None = None
    step_mean_s: float | None = None
    step_p95_s: float | None = None
    samples_per_s: float | None = None
    shares: list[Share] = field(default_factory=list)
    """Of the last seconds; they sum to 1. Empty if nothing can be said."""
    phase: str = ""
    """What it does right now."""
    phase_s: float | None = None
    """Since the last record, at most for how long."""
    workers: list[WorkerRow] = field(default_factory=list)
    """The training thread itself first; empty if they were not asked for."""

    def frac(self, part: str) -> float | None:
        """Share of one part; None if nothing is known."""
        if not self.shares:
            return None
        return sum(share.frac for share in self.shares if share.part == part)


class DeviceRow(Struct, frozen=True, kw_only=True):
    """One accelerator that the job is on, as it was last read."""

    device: str
    """`gpu0`, or `gpu0.mig1`."""
    name: str = ""
    is_lost: bool = False
    """The driver has lost it."""
    reported_frac: float | None = None
    """Reported utilisation: of the time, any kernel was resident."""
    sm_frac: float | None = None
    """Of its multiprocessors: active."""
    throttled_frac: float | None = None
    """Of the time: slowed down by power, heat or hardware."""
    watts: float | None = None
    memory_bytes: float | None = None
    """In use."""


class HostLine(Struct, frozen=True, kw_only=True):
    """The machine in the last seconds."""

    cores_used: float | None = None
    """By the job."""
    cores_allowed: float | None = None
    cores_others: float | None = None
    """By processes outside the job."""
    cpu_pressure_frac: float | None = None
    """Of the time: something had to wait for it (PSI, some)."""
    io_pressure_frac: float | None = None
    memory_pressure_frac: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    net_in_bytes_per_s: float | None = None
    """Without the loopback."""
    net_out_bytes_per_s: float | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """All that the screen shows, at one moment."""

    run: RunFacts
    state: RunState
    run_s: float
    """How long it has been running, or ran."""
    window_s: float
    """How long "the last seconds" are."""
    ranks: list[RankRow] = field(default_factory=list)
    host: HostLine = field(default_factory=HostLine)
    """Of several hosts, the first."""
    devices: list[DeviceRow] = field(default_factory=list)
    blindspots: list[Blindspot] = field(default_factory=list)
    verdict: str = ""
    """Of the last diagnosis of what was recorded so far; empty until there is one."""
    code: str | None = None
    """Of that verdict; null without one, and where none could be told. Likewise the next three."""
    stage: str | None = None
    limit: str | None = None
    lost_share: float | None = None
    """What its cause costs, as a share of the judged time."""
