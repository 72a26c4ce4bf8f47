"""What `feed` asks, what the job answers, and what the user sees. JSON of `feed --json`."""

from __future__ import annotations

from msgspec import Struct, field

from fuelline.schema.diagnosis.findings import Finding, Verdict  # noqa: TC001 - msgspec resolves it
from fuelline.schema.diagnosis.workloads import PASS_SHARE
from fuelline.schema.readings import Signal  # noqa: TC001 - likewise
from fuelline.schema.run.recording import Blindspot  # noqa: TC001 - likewise

FEED_VERSION = 1


class FeedRequest(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    seconds: float
    step_seconds: float | None = None
    """A step of the emulated accelerator, whatever the batch size."""
    samples_per_s: float | None = None
    """Its appetite; a step then takes as long as its samples need."""
    loader: int | None = None
    """Which loader, in the order of their first iteration, from 1; None: the training's."""
    workload: str | None = None


class SeenLoader(Struct, frozen=True, kw_only=True):
    """A loader that the script iterated."""

    dataset: str
    sampler: str
    batch_size: int | None
    workers: int
    random: bool
    """Whether its order is not that of a plain pass; such a loader is taken for the training's."""
    grad: bool
    """Whether gradients were on when it was first iterated."""


class FeedAccount(Struct, frozen=True, kw_only=True):
    """What one process of the job wrote; times batch by batch."""

    pid: int
    seen: list[SeenLoader]
    driving: bool = False
    """Set while it measures: it was killed if it stays."""
    number: int | None = None
    """Which of `seen` was driven, from 1; None if none was."""
    problem: str | None = None
    waits_ns: list[int] = field(default_factory=list)
    works_ns: list[int] = field(default_factory=list)
    """What the emulated accelerator took; next to nothing at full speed."""
    samples: list[int] = field(default_factory=list)
    warm: int = 0
    """Batches until the queue was level; they are not counted."""
    epochs: int = 0
    """Passes that were completed."""


class FedChip(Struct, frozen=True, kw_only=True):
    """Whether this pipeline could feed a chip."""

    chip: str
    needs_samples_per_s: float
    count: int
    """How many of them it could feed at the pass mark; 0 means that even one would starve."""
    basis: str


class Feed(Struct, frozen=True, kw_only=True):
    """The answer."""

    schema_version: int = FEED_VERSION
    fuelline_version: str = ""
    samples_per_s: Signal
    """At full speed: what the pipeline can give. With an emulated accelerator: what that took."""
    utilisation: Signal
    """Compute over compute plus waiting, the first batches left out (MLPerf Storage's AU)."""
    pass_share: float = PASS_SHARE
    is_fed: bool | None = None
    """None at full speed, where there is no accelerator to feed."""
    batch_seconds: Signal
    """Time between batches: a step at least this long is fed, a shorter one waits."""
    step_seconds: float | None = None
    """Of the emulated accelerator."""
    asked_samples_per_s: float | None = None
    batches: int
    samples: int
    seconds: float
    epochs: int
    """Passes that were completed while it ran."""
    first_batch_seconds: float
    processes: int = 1
    """Training processes that were fed at the same time; rates are sums over them."""
    number: int
    seen: list[SeenLoader]
    workload: str | None = None
    chips: list[FedChip] = field(default_factory=list)
    verdict: Verdict
    findings: list[Finding] = field(default_factory=list)
    blindspots: list[Blindspot] = field(default_factory=list)
    problem: str | None = None
    """What ended the measurement early."""
