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
tell: there is no second step to separate noise from change."""


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


class ComparedRun(Struct, frozen=True, kw_only=True):
    """One side."""

    label: str
    steps: int
    """0 if no steps are known."""
    seconds: float
    """Mean step, or the whole run."""
    verdict: str
    sentence: str


class RunComparison(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    schema_version: int = COMPARISON_VERSION
    fuelline_version: str = ""
    before: ComparedRun
    after: ComparedRun
    unit: Literal["step", "run"]
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

    def __repr__(self) -> str:
        step = self.step
        share = "" if step.share is None else f" by {percent(abs(step.share))}"
        changed = step.judgement if step.judgement in ("same", "cannot tell") else ""
        said = changed or f"{step.judgement}{share}"
        return f"<RunComparison {self.before.label} -> {self.after.label}: {self.unit} {said}>"

    def check(self) -> None:
        """Raise if the parts contradict the whole."""
        total = sum(part.change for part in self.parts)
        if abs(total - self.step.change) > 1e-6 * max(1.0, abs(self.step.after)):
            raise ValueError(f"parts change by {total}, steps by {self.step.change}")
