"""What changed between two runs; as JSON these structs are the contract of `compare --json`.

New fields go last with a default; a field is never renamed or given another meaning within one
`schema_version`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from fuelline.schema.student import Level  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.units import percent

COMPARISON_VERSION = 1

Judgement = Literal["slower", "faster", "same", "cannot tell"]
"""slower, faster: beyond the noise, and by more than a hundredth of a step. same: not so. cannot
tell: beyond the noise, but other processes or another speed of the machine may have made all of it;
or there is no second step to separate noise from change."""

NOTABLE_FRAC = 0.1
"""Of a step: a change that anybody would want to know of."""
MOST_RECORDINGS = 50
"""Of each side: nobody makes more."""


class RunWork(Struct, frozen=True, kw_only=True):
    """What a step costs in CPU time, and what other processes made it wait, in seconds."""

    trainer_cpu: list[float] = field(default_factory=list)
    """CPU time of the trainer thread for a step: one value per stretch of one or a few steps."""
    fetch_cpu: list[float] = field(default_factory=list)
    """CPU time that workers spent on the batches of a step: one value per batch that was timed."""
    felt_frac: float = 0.0
    """Of the time of a fetch: how much the trainer waits longer for each second more of it."""
    disturbed_frac: float = 0.0
    """Of the time, at most: a process outside the job was running."""
    queued: float = 0.0
    """A step: threads of the job stood ready to run, and processes outside it had the cores."""
    supply: float | None = None
    """Time that workers take for the batches of a step when they are disturbed least; 0 if the
    trainer fetches them itself, None if fetches were not seen."""


class RunSamples(Struct, frozen=True, kw_only=True):
    """One run, step by step, in seconds: what a comparison is made of."""

    label: str
    kind: Literal["recorded", "trace"]
    steps: list[float]
    """Length of each; a single one, the whole run, if no steps are known."""
    is_stepped: bool
    parts: dict[str, list[float]]
    """Part of the budget or of the ledger to its seconds in each step; they sum to `steps`."""
    kernels: dict[str, list[float]] = field(default_factory=dict)
    """Class of kernels to its seconds in each step, all of a device's streams added up."""
    devices: list[str] = field(default_factory=list)
    """Names of the accelerators, one per device."""
    ranks: int = 1
    command: list[str] = field(default_factory=list)
    verdict: str = ""
    """Code of the verdict, empty if none could be given."""
    sentence: str = ""
    left_out: int = 0
    """Steps at the ends that were recorded only in part."""
    rare: dict[str, list[float]] = field(default_factory=dict)
    """Part that comes once in many steps (an epoch's start, a checkpoint) to the seconds of each
    time; the same seconds are in `parts`."""
    work: RunWork | None = None
    """Of a recorded run that was watched; None otherwise."""
    samples: float | None = None
    """A step; None if not known."""
    step_mark: str = ""
    """Of a trace: what its steps were found by. Steps of another mark are another thing."""
    products: float | None = None
    """Of a trace with inferred steps: kernels a step that multiply matrices."""
    shares: dict[str, float] = field(default_factory=dict)
    """Of a trace: parts of the ledger as shares of its devices' time; they sum to 1."""
    kernel_shares: dict[str, float] = field(default_factory=dict)
    """Likewise classes of kernels, all of a device's streams added up."""
    kernel_times: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Of a trace: a kernel that computes to how often it ran and its mean length."""


class Change(Struct, frozen=True, kw_only=True):
    """One number in both runs, in seconds a step (of the whole run if steps are not known)."""

    name: str
    before: float
    after: float
    change: float
    """after - before."""
    share: float | None
    """The change over the length of a step before; null if that is zero."""
    judgement: Judgement
    low: float | None = None
    """Lower end of the interval of the change, from the spread between steps; null without one."""
    high: float | None = None
    level: Level | None = None
    """Of that interval, in percent."""


class RelativeChange(Change, frozen=True, kw_only=True):
    """The trainer's own parts of a step when disturbed least, of which one changed."""

    part: str
    """That changed."""
    factor: float
    """How many times as long the others took: the machine. `before` is with it."""


class RareChange(Struct, frozen=True, kw_only=True):
    """What comes once in many steps, in seconds each time."""

    name: str
    count_before: int
    count_after: int
    before: float | None
    """Mean of one time; null if there was none."""
    after: float | None
    change: float
    """A step: what the total changed by, from number and length together."""
    judgement: Judgement
    """Of that change."""
    low: float | None = None
    high: float | None = None
    level: Level | None = None


class ComparedRun(Struct, frozen=True, kw_only=True):
    """One side."""

    label: str
    """Of several recordings: those of all of them."""
    steps: int
    """Of all recordings; 0 if no steps are known."""
    seconds: float
    """Mean step, or the whole run."""
    verdict: str
    sentence: str
    total: float = 0.0
    """All of its steps, or the whole run."""
    queued: float | None = None
    """A step: waited for a core that a process outside the job had; null if not seen."""
    recordings: int = 1


class RunComparison(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    schema_version: int = COMPARISON_VERSION
    fuelline_version: str = ""
    before: ComparedRun
    after: ComparedRun
    unit: Literal["step", "run", "share"]
    """`share`: steps are not comparable, so everything is a share of the devices' time."""
    step: Change
    parts: list[Change]
    """By how much they changed, the most first."""
    kernels: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What else differs between the two, and so may be the reason."""
    threshold: float | None = None
    """Share by which a step may be longer, if one was given."""
    is_over: bool = False
    """Whether it is longer by more than that, beyond the noise: exit code 1."""
    judgement: Judgement = "cannot tell"
    """Of the whole: that of the step; where neighbours hide it, of its parts against each other or
    of its CPU time."""
    judged_by: Literal["step", "cpu", "parts"] = "step"
    rare: list[RareChange] = field(default_factory=list)
    """What comes once in many steps; it is in `parts` as well, spread over them."""
    cpu: Change | None = None
    """CPU time of a step when it was disturbed least; null if it was not seen in both runs."""
    relative: RelativeChange | None = None
    """A part of a step that changed against all others; null where none surely did."""
    recordings_needed: int | None = None
    """Of each side, for a change of a tenth of a step, in all its parts alike, to be seen in 95 of
    100 comparisons on this machine as it was; null if more than 50, or not known."""

    def __repr__(self) -> str:
        share = self.judged.share
        changed = self.judgement if self.judgement in ("same", "cannot tell") else ""
        said = changed or self.judgement + ("" if share is None else f" by {percent(abs(share))}")
        return f"<RunComparison {self.before.label} -> {self.after.label}: {self.unit} {said}>"

    @property
    def judged(self) -> Change:
        """What the judgement is about: the step's length, its CPU time, or its parts."""
        found = {"step": self.step, "cpu": self.cpu, "parts": self.relative}[self.judged_by]
        return self.step if found is None else found

    def check(self) -> None:
        """Raise if the parts contradict the whole."""
        total = sum(part.change for part in self.parts)
        if abs(total - self.step.change) > 1e-6 * max(1.0, abs(self.step.after)):
            raise ValueError(f"parts change by {total}, steps by {self.step.change}")
