"""A number with its doubt, or the reason why there is none. Unknown is never zero."""

from __future__ import annotations

from msgspec import Struct


class Reading(Struct, frozen=True, kw_only=True, tag="reading", omit_defaults=True):
    """A measured number."""

    value: float
    unit: str
    """`frac` (0 to 1), `s`, `bytes`, `bytes/s`, `cores`, `count`, `count/s`."""
    low: float | None = None
    """Lower end of the 95 % interval; None where the number is a plain total without doubt."""
    high: float | None = None
    count: int | None = None
    """How many observations it rests on. Few means: do not trust the third digit."""
    origin: str = ""
    """Which signal made it, from which table: the way back to the clock."""

    def check(self) -> None:
        """Raise if the interval does not hold the value."""
        if self.low is not None and self.low > self.value + 1e-12:
            raise ValueError(f"{self.origin}: low {self.low} above value {self.value}")
        if self.high is not None and self.high < self.value - 1e-12:
            raise ValueError(f"{self.origin}: high {self.high} below value {self.value}")


class Missing(Struct, frozen=True, kw_only=True, tag="missing"):
    """No number, and why."""

    reason: str


Signal = Reading | Missing
"""What every function in `signals` returns."""


def value_of(signal: Signal) -> float | None:
    """The number, or None if it is missing: for rules, which must stay silent then."""
    return signal.value if isinstance(signal, Reading) else None


def at_least(signal: Signal, threshold: float) -> bool:
    """True only if the number is known and reaches the threshold."""
    return isinstance(signal, Reading) and signal.value >= threshold


def below(signal: Signal, threshold: float) -> bool:
    """True only if the number is known and stays under the threshold."""
    return isinstance(signal, Reading) and signal.value < threshold
