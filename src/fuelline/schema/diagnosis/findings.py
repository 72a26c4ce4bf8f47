"""What a diagnosis says. Encoded as JSON these structs are the contract of `diagnose --json`.

The schema is generated into docs/diagnosis.schema.json; a test keeps the two equal. New fields go
last with a default; a field is never renamed or given another meaning within one `schema_version`.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - msgspec resolves it at run time
from typing import ClassVar, Literal

from msgspec import Struct, field

from fuelline.schema.diagnosis.devices import DeviceFacts, EnergyFacts  # noqa: TC001 - likewise
from fuelline.schema.diagnosis.fixes import BeforeAfter, LoaderFixes  # noqa: TC001 - likewise
from fuelline.schema.diagnosis.forecasts import WhatIf  # noqa: TC001 - likewise
from fuelline.schema.diagnosis.start_up import StartLedger  # noqa: TC001 - likewise
from fuelline.schema.diagnosis.trials import Applicability, Recommendation  # noqa: TC001 - likewise
from fuelline.schema.parts import (
    DEVICE_PARTS,
    Activity,
    DevicePart,
    IdleCause,
    Part,
    StepPart,
)
from fuelline.schema.readings import Signal  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.run.recording import Blindspot  # noqa: TC001
from fuelline.schema.run.trace import Quality, TraceAnswer  # noqa: TC001
from fuelline.schema.student import Level  # noqa: TC001
from fuelline.schema.units import percent

DIAGNOSIS_VERSION = 1
_ROUNDING = 1e-6
"""Of the whole, by which sums of seconds may differ."""

Stage = Literal[
    "read",
    "fetch",
    "decode",
    "transform",
    "collate",
    "handoff",
    "transfer",
    "compute",
    "sync",
    "pause",
    "write",
]
"""The station of the assembly line that the accelerator waits for; compute if it does not wait.
fetch: whoever prepares samples is blocked, though not in reading: asleep, or waiting for a service
or for another process. write: of what a job produces that trains nothing."""

Limit = Literal[
    "bandwidth",
    "latency",
    "contention",
    "memory",
    "parallelism",
    "cores",
    "code",
    "math",
    "launch",
    "imbalance",
    "jitter",
    "throttle",
    "hardware",
]
"""What keeps that station from being faster, and so what would help."""


class Evidence(Struct, frozen=True, kw_only=True):
    """One measured fact that carries a finding."""

    what: str
    """A plain sentence with the number in it."""
    signal: Signal | None = None
    path: str | None = None
    mount: str | None = None
    fstype: str | None = None
    syscall: str | None = None
    line: str | None = None
    """`file:line` of user code."""
    source: str | None = None
    """The text of that line, as it was when the job ran."""


_UPPER = {"cpu": "CPU"}


def title_of(name: str) -> str:
    """Of a rule, as it is read: `too little CPU`."""
    return " ".join(_UPPER.get(word, word) for word in name.split("-"))


class Remedy(Struct, frozen=True, kw_only=True):
    """A proposal: what to set, why it should help, what it may cost."""

    setting: str
    """Exactly what to write or type."""
    why: str
    applicability: Applicability
    risk: str = ""
    at_most_speedup: float | None = None
    """An upper bound from what was lost and what the setting can change; not a prediction."""
    cost: str = ""
    """What it takes: cores, memory, disk, work."""
    question: WhatIf | None = None
    """What the setting means to the pipeline model; null if the model has no word for it."""
    gain: Signal | None = None
    """Predicted speedup with a 90 % interval, or why there is no prediction; null if not asked."""
    gain_words: str = ""
    """`2.1x (1.9-2.3), then storage bandwidth`."""
    worth_usd_per_day: float | None = None
    """What an accelerator that runs all day then saves, at the price given by --price."""
    by_fix: bool = False
    """It is to have --fix find out: nothing for a run that had it, or that it cannot help."""


class Finding(Struct, frozen=True, kw_only=True):
    """One bottleneck that the evidence carries."""

    code: str
    name: str
    stage: Stage
    limit: Limit
    sentence: str
    lost_seconds: float
    """Accelerator time inside the window that this cost; removing it saves at most this much."""
    lost_share: float
    """The same as a share of the window."""
    lost_usd: float | None = None
    """At the price given by --price; null without one."""
    confidence: Literal["high", "medium", "low"] = "high"
    evidence: list[Evidence] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    lost_joules: Signal | None = None
    """What the job's accelerators drew meanwhile: at least what they draw at rest, at most their
    mean power; null where no power was read."""

    @property
    def title(self) -> str:
        """`too little CPU`."""
        return title_of(self.name)

    def __repr__(self) -> str:
        return f"<Finding {self.code} {self.title} {percent(self.lost_share)}, {self.confidence}>"


class Verdict(Struct, frozen=True, kw_only=True):
    """The one root cause, or why none can be named."""

    code: str | None
    stage: Stage | None
    limit: Limit | None
    share_of_wall: float | None
    sentence: str
    reason: str | None = None
    """Set if and only if `code` is null: what is missing and which measurement would settle it."""


class BudgetPart(Struct, frozen=True, kw_only=True):
    """One thing that the trainer's time went to."""

    part: Part
    seconds: float
    share: float


class DeviceBudget(Struct, frozen=True, kw_only=True):
    """Where the device's time went in the window, by events on its own clock."""

    device: int
    """Its number in the job."""
    seconds: float
    parts: dict[DevicePart, float]
    """Every one of `schema/parts.py:DEVICE_PARTS`, in seconds; they sum to `seconds`."""
    lead_seconds: dict[str, float] = field(default_factory=dict)
    """How far the device is behind the host after `forward`, `backward` and `step`, medians. As
    short as a launch takes: the host is the limit there. Milliseconds: the device is."""

    def share_of(self, part: DevicePart) -> float:
        """Of the device's time."""
        return self.parts[part] / self.seconds if self.seconds else 0.0

    def check(self) -> None:
        """Raise if the parts are not the whole."""
        if set(self.parts) != set(DEVICE_PARTS):
            raise ValueError(f"device {self.device}: parts are {sorted(self.parts)}")
        if abs(sum(self.parts.values()) - self.seconds) > _ROUNDING * max(self.seconds, 1.0):
            raise ValueError(f"device {self.device}: parts sum to {sum(self.parts.values())} s")
        if min(self.parts.values()) < 0:
            raise ValueError(f"device {self.device}: a part is negative")


class StepStats(Struct, frozen=True, kw_only=True):
    """Steps inside the window, in seconds from boundary to boundary."""

    count: int
    mean: float | None = None
    """Of a recorded run: the window over its steps, so that the parts of the budget add up to it;
    of an imported one: from a step's start to the next."""
    p50: float | None = None
    p95: float | None = None
    kind: Literal["train", "batch", "time"] = "train"
    """train: an optimizer step. batch: a batch from the loader, in jobs without an optimizer. time:
    a second, in jobs with neither."""
    samples_per_s: float | None = None


class Window(Struct, frozen=True, kw_only=True):
    """The stretch of the run that is judged: the end of the first step to the last event."""

    seconds: float
    before_seconds: float
    """Start of the job to the window: imports, building the model, the first batch and step."""
    after_seconds: float


class RunSummary(Struct, frozen=True, kw_only=True):
    """The run that was diagnosed."""

    run_id: str
    command: list[str]
    host: str
    exit_code: int | None
    seconds: float | None
    path: str = ""
    tier: Literal["", "T0", "T1", "T2"] = ""
    """How a job was looked at that ran already: by its thread states and counters (T0), its stacks
    as well (T1), or hooks (T2); empty for a run that was recorded from its start."""


class LateRank(Struct, frozen=True, kw_only=True):
    """A rank that makes the others wait, and why it is late by its own recording."""

    rank: int
    late_count: int
    """Steps in which it made the others wait longest."""
    of: int
    """Steps whose collectives were matched across ranks."""
    caused_wait_seconds: float
    """What the other ranks waited for it, together."""
    because: str
    stage: Stage | None = None
    limit: Limit | None = None
    part: StepPart | IdleCause | Activity | Literal[""] = ""
    """Recorded: the part of its budget that is longer than the others'. Imported: what its device
    does while they wait. Empty if it is not known."""
    remedies: list[Remedy] = field(default_factory=list)
    """Of its own cause, as for a job that is this rank alone: no gain is predicted for all."""


class JitterForecast(Struct, frozen=True, kw_only=True):
    """What ranks wait in each step for whichever of them is last, with this many ranks."""

    ranks: int
    is_measured: bool
    """Whether the job had this many; otherwise it is the expected maximum of independent ranks."""
    wait_seconds: float
    low: float
    """Lower end of the interval at `level` percent."""
    high: float
    level: Level = 90


class Collectives(Struct, frozen=True, kw_only=True):
    """How ranks wait for each other."""

    ranks: int = 0
    """Recorded ranks; 0 if the job is not distributed."""
    wait_share: float | None = None
    """Of the window, mean over ranks."""
    exchange_share: float | None = None
    """Of the window: after the last rank has arrived."""
    bytes_per_s: Signal | None = None
    latency_seconds: Signal | None = None
    culprits: list[LateRank] = field(default_factory=list)
    jitter: list[JitterForecast] = field(default_factory=list)
    """Now, and with 2, 4 and 8 times as many ranks. Constant differences are not jitter."""


class ServedFiles(Struct, frozen=True, kw_only=True):
    """Files that the job opened and a pack or the cache answered for, counted in its processes."""

    packed: int
    """Read from a pack."""
    hits: int
    """Read from a local copy that was there. Low beside `copied`: the cache is still being filled,
    or it is too small for the data set."""
    copied: int
    """Read from the slow mount, and copied."""
    passed: int
    """Read from the slow mount and not copied: too large, just changed, or no room."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    schema_version: int = DIAGNOSIS_VERSION
    fuelline_version: str = ""
    run: RunSummary
    verdict: Verdict
    budget: list[BudgetPart]
    """Where the window went; shares sum to 1. Empty if there was no window."""
    findings: list[Finding]
    steps: StepStats
    window: Window | None
    blindspots: list[Blindspot]
    price_usd_per_hour: float | None = None
    collectives: Collectives = field(default_factory=Collectives)
    devices: list[DeviceFacts] = field(default_factory=list)
    """The job's accelerators with their utilisation ladder; empty if none could be asked."""
    unused_devices: list[str] = field(default_factory=list)
    """Accelerators of the host that the job did not use, if that could be seen."""
    quality: list[Quality] = field(default_factory=list)
    """What is wrong with an imported trace; empty for recorded runs, which have `blindspots`."""
    trace: TraceAnswer | None = None
    """What only imported traces have: ledgers, gaps, kernels; null for recorded runs."""
    fixes: list[LoaderFixes] = field(default_factory=list)
    """What `run --fix` did, loader by loader; empty without --fix."""
    settings: list[Remedy] = field(default_factory=list)
    """Settings that would help and that --fix leaves to the user; without --fix those for a healthy
    run, and empty for others, whose findings have remedies of their own."""
    fixed: BeforeAfter | None = None
    """What --fix made of the job; null without it, or if there is too little of either."""
    recommended: Recommendation | None = None
    """The one loader setting for this job; null if it has no loader that the model explains."""
    served: ServedFiles | None = None
    """What `run --packed` and `--cache` served; null without them."""
    tried_by: Literal["run --fix", "tune"] | None = "run --fix"
    """The command that can try other workers for this job: `tune` where a running job cannot be
    given any; null where they would change the batches."""

    def __repr__(self) -> str:
        verdict, count = self.verdict, len(self.findings)
        if verdict.code is None:
            said = f"cannot tell ({verdict.reason})"
        else:
            share = "" if verdict.share_of_wall is None else f" {percent(verdict.share_of_wall)}"
            said = f"{self.title()}{share}"
        return f"<Diagnosis {said}; {count} finding{'' if count == 1 else 's'}>"

    def title(self) -> str:
        """`PR201 too few workers`, `CP400 healthy`, or `cannot tell`."""
        code = self.verdict.code
        names = (each.name for each in self.findings if each.code == code)
        title = title_of(next(names, "healthy"))
        return f"{code} {title}" if code is not None else "cannot tell"

    def check(self) -> None:
        """Raise if the parts contradict each other."""
        if self.budget and abs(sum(part.share for part in self.budget) - 1) > 1e-6:
            raise ValueError("budget shares do not sum to 1")
        if any(part.seconds < 0 for part in self.budget):
            raise ValueError("a budget part is negative")
        for ledger in self.trace.ledgers if self.trace is not None else ():
            ledger.check()
        if (self.verdict.code is None) != (self.verdict.reason is not None):
            raise ValueError("a verdict has either a code or a reason")

    device_budget: DeviceBudget | None = None
    """Of a recorded run whose device had timed events: where its time went; null for others."""
    draw_html: ClassVar[Callable[[Diagnosis], str] | None] = None
    """What draws it for a notebook: set by the room that may ask for drawings (`api/shown.py`)."""

    def _repr_html_(self) -> str | None:
        """What notebooks show; the text where nobody draws."""
        draw = type(self).draw_html
        return None if draw is None else draw(self)

    energy: EnergyFacts | None = None
    """Of a recorded run: what accelerators and host drew; null for imported ones."""
    start_up: StartLedger | None = None
    """Of a recorded run: from the job's start to its first usual step; null where that was not
    seen."""
