"""A run over time, small enough to be drawn: steps in buckets, and what the machine did meanwhile.

Times are seconds since the job began, or whole microseconds within a bucket. Buckets leave nothing
out: the parts of all of them together are the budget of the whole.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from fuelline.schema.parts import Part  # noqa: TC001 - msgspec resolves it at run time

MomentKind = Literal["epoch", "checkpoint", "validation", "fix", "throttled"]
LaneName = Literal["workers", "device", "cores", "memory", "storage", "network"]


class StepLevel(Struct, frozen=True, kw_only=True):
    """All steps in buckets of as many; columns of equal length, a bucket each."""

    steps: list[int]
    """In the bucket; 0 for what comes after the last step."""
    length_us: list[int]
    """From the bucket's beginning to that of the next."""
    parts_us: dict[Part, list[int]]
    """What its steps spent on each part, together."""
    least_us: list[int]
    """Its shortest step; likewise the next three."""
    median_us: list[int]
    p95_us: list[int]
    most_us: list[int]


class Moment(Struct, frozen=True, kw_only=True):
    """Something that happened, and that the steps may show."""

    kind: MomentKind
    at_s: float
    seconds: float = 0.0
    """How long it lasted; 0 if it did not."""
    detail: str = ""


class Lane(Struct, frozen=True, kw_only=True):
    """One resource over time, in bins of equal length."""

    name: LaneName
    unit: Literal["frac", "cores", "bytes", "bytes/s"]
    series: dict[str, list[float | None]]
    """What is drawn to its value in each bin; None where nothing was seen."""
    is_stacked: bool = False
    """The series are shares of one whole, which is 1; else they are lines."""
    most: float | None = None
    """What there is of it; None if that is not known."""
    which: str = ""
    """Which of several of its kind; empty if there is one."""


class RunPicture(Struct, frozen=True, kw_only=True):
    """Everything that the drawing needs."""

    start_s: float
    """Of the first bucket."""
    seconds: float
    levels: list[StepLevel]
    """The finest first; each next one has a quarter of the buckets."""
    bin_s: float
    """Length of a lane's bins; the first begins at `start_s`."""
    lanes: list[Lane] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    moments_left_out: int = 0
    """More than can be shown."""
    judged: tuple[float, float] | None = None
    """From when to when the verdict speaks of, if that is not all of it."""
    per: Literal["step", "slice"] = "step"
    """What buckets hold: steps, or where none are marked equal slices of the time."""
    which: str = ""
    """Of several devices or ranks: the one whose time the buckets show."""
    kept_frac: float = 1.0
    """Of the run's time that is shown, where only excerpts of it were kept: they follow each other
    without a gap."""

    def check(self) -> None:
        """Raise if the levels contradict each other."""
        totals = {
            (sum(level.steps), sum(sum(part) for part in level.parts_us.values()))
            for level in self.levels
        }
        if len(totals) > 1:
            raise ValueError(f"levels differ: {totals}")
