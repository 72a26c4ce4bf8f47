"""What keeps the workers of one job waiting for each other, found by replaying their steps."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

StragglerCause = Literal["slow worker", "uneven stages", "uneven microbatches", "slow exchange"]
"""slow worker: it takes longer than the replicas of its stage. uneven stages: a stage takes longer
than the others in every replica. uneven microbatches: the same worker takes long for one and short
for the next. slow exchange: sending and receiving takes longer than usual."""


class StragglerEffect(Struct, frozen=True, kw_only=True):
    """One cause, and what evening it out would give back."""

    cause: StragglerCause
    share: float
    """Of the time that is lost to unevenness. Near 1: this is all of it. Can exceed 1 where the
    evened step is shorter than one in which all is average."""
    recovered_seconds: float
    """Of a step."""
    ranks: list[int] = field(default_factory=list)
    stage: int | None = None
    ratio: float | None = None
    """How long it takes over how long its peers take for the same."""
    correlation: float | None = None
    """Uneven microbatches: between forward and backward of the same microbatch. Near 1: the
    microbatches differ in work; near 0: something disturbs at random."""


class StragglerFacts(Struct, frozen=True, kw_only=True):
    """A job of pipeline stages and replicas, as recorded and as it could have been."""

    workers: int
    stages: int
    replicas: int
    steps: int
    """Replayed; of a long trace, evenly spaced ones."""
    step_seconds: float
    """Mean, replayed with the recorded durations and nothing in between."""
    ideal_seconds: float
    """The same with every operation as long as the mean of its kind, transfers as the median."""
    slowdown: float
    """step over ideal. 1: nobody waits because others are uneven."""
    effects: list[StragglerEffect] = field(default_factory=list)
    """Largest share first."""
