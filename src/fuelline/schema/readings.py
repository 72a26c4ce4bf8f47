"""A number with its doubt, or the reason why there is none. Unknown is never zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.student import Level  # noqa: TC001 - msgspec resolves it at run time

if TYPE_CHECKING:
    from collections.abc import Iterable


class Reading(Struct, frozen=True, kw_only=True, tag="reading", omit_defaults=True):
    """A measured number."""

    value: float
    unit: str
    """`frac` (0 to 1), `s`, `bytes`, `bytes/s`, `cores`, `count`, `count/s`."""
    low: float | None = None
    """Lower end of its interval; None where the number is a plain total without doubt."""
    high: float | None = None
    count: int | None = None
    """How many observations it rests on. Few means: do not trust the third digit."""
    origin: str = ""
    """Which signal made it, from which table: the way back to the clock."""
    level: Level | None = None
    """Of the interval, in percent; None without one, or if its ends are bounds."""

    def check(self) -> None:
        """Raise if the interval does not hold the value."""
        if self.low is not None and self.low > self.value + 1e-12:
            raise ValueError(f"{self.origin}: low {self.low} above value {self.value}")
        if self.high is not None and self.high < self.value - 1e-12:
            raise ValueError(f"{self.origin}: high {self.high} below value {self.value}")


class Missing(Struct, frozen=True, kw_only=True, tag="missing"):
    """No number, and why."""

    reason: str


def common_level(readings: Iterable[Reading]) -> Level | None:
    """Of intervals that are about to become one; None if a reading has none.

    Raises ValueError if they differ: half-widths of 90 and of 95 % are not of one kind.
    """
    levels = {reading.level for reading in readings}
    if len(levels - {None}) > 1:
        raise ValueError(f"intervals of different levels are combined: {levels}")
    return None if None in levels else next(iter(levels), None)


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
