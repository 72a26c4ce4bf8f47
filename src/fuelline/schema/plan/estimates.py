"""What a planner is asked, and what it answers: an interval, its limit, and the sum of its terms.

A `Term` is a share of a time with the doubt of its constant. An `Estimate` is a number between
`low` and `high` that names what limits it. Nothing here computes; `plan` does.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from fuelline.schema.student import Level  # noqa: TC001 - msgspec resolves it at run time


class Parallelism(Struct, frozen=True, kw_only=True):
    """How a model is spread over chips."""

    tp: int = 1
    """Tensor: every matrix is cut; all chips read at once; two exchanges a layer."""
    pp: int = 1
    """Pipeline: layers are cut; capacity, not latency."""
    dp: int = 1
    """Replicas; with `ep` above 1 attention is replicated and experts are not."""
    ep: int = 1
    """Experts are spread over this many chips."""
    cp: int = 1
    """Context (sequence): a long sequence is cut."""
    shared_norms: bool = False
    """Sequence parallelism beside `tp`: norms and residuals are cut too, not repeated."""

    @property
    def chips(self) -> int:
        """Chips in all; experts are spread over the chips of `tp` and `dp`."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def shards(self) -> int:
        """Chips that work on one sequence together."""
        return self.tp * self.pp * self.cp

    @property
    def words(self) -> str:
        """`tp 4, pp 2`."""
        degrees = [(name, getattr(self, name)) for name in ("tp", "pp", "dp", "ep", "cp")]
        return ", ".join(f"{name} {size}" for name, size in degrees if size > 1) or "one chip"


class Slice(Struct, frozen=True):
    """Sequences of one kind that are in the same step."""

    count: float
    """Sequences."""
    new: float
    """Tokens that each sends through the model in this step: 1 when decoding."""
    past: float = 0.0
    """Tokens that each has in the cache already."""


TermLimit = Literal[
    "memory bandwidth",
    "math",
    "launch",
    "interconnect",
    "network",
    "link between sites",
    "host",
    "host bus",
    "imbalance",
    "lockstep",
    "pipeline",
    "jitter",
    "queue",
    "unknown",
]
"""What a part of a time waits for. imbalance: of experts. lockstep: with batches that prefill.
pipeline: its bubble. unknown: there are no terms."""


class Term(Struct, frozen=True, kw_only=True):
    """One summand of a time."""

    name: str
    seconds: float
    limit: TermLimit
    doubt_frac: float = 0.1
    """One standard deviation of this term's constant, as a share of it."""


PLAN_LEVEL: Level = 80
"""Of every estimate's interval, in percent: as often a measured value should lie inside."""


class Estimate(Struct, frozen=True, kw_only=True):
    """A number with its interval and what limits it."""

    value: float
    low: float
    high: float
    level: Level
    unit: str
    limit: TermLimit
    """The term that the answer waits for most."""
    terms: tuple[Term, ...] = ()
    assumptions: tuple[str, ...] = ()
    """What was not given and had to be assumed."""
    work: float | None = None
    """None: the terms sum to the value. Else the value is so much work over that sum: tokens of a
    rate, seconds at the peak rate of an MFU."""

    @property
    def explained(self) -> float:
        """The value, from its terms alone."""
        seconds = sum(term.seconds for term in self.terms)
        return seconds if self.work is None else self.work / seconds

    def check(self) -> None:
        """Raise unless the value is inside its interval."""
        if not self.low <= self.value <= self.high:
            raise ValueError(f"{self.value} is outside {self.low} to {self.high}")

    def check_explained(self) -> None:
        """Raise unless the terms make the value; those of a row have their own unit."""
        if not math.isclose(self.value, self.explained, rel_tol=1e-6):
            raise ValueError(f"{self.value} {self.unit} is explained as {self.explained}")


class Unanswered(Struct, frozen=True, kw_only=True):
    """No number, and why."""

    reason: str
