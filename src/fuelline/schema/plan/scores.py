"""How predictions compare with measured rows: what `plan check` says, and its JSON contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from fuelline.schema.plan.estimates import TermLimit


class Checked(Struct, frozen=True, kw_only=True):
    """One row beside its prediction."""

    id: str
    group: str
    model: str
    hardware: str
    metric: str
    unit: str
    measured: float
    predicted: float
    low: float
    high: float
    error_frac: float
    """Predicted over measured, less one."""
    limit: TermLimit
    regime: str
    assumptions: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    """Of the worst rows: what may explain the error, strongest first."""

    @property
    def inside(self) -> bool:
        """The interval holds the measured value."""
        return self.low <= self.measured <= self.high


class ScoreGroup(Struct, frozen=True, kw_only=True):
    """Rows of one kind."""

    group: str
    clean_rows: int
    clean_mape_frac: float | None
    """Mean of the absolute errors, as a share; None without rows."""
    clean_median_frac: float | None
    all_rows: int
    all_mape_frac: float | None
    all_median_frac: float | None
    coverage_frac: float | None
    """Share of all rows inside their 80 % interval."""


class NoAnswer(Struct, frozen=True, kw_only=True):
    """A row that got none."""

    id: str
    reason: str


class Score(Struct, frozen=True, kw_only=True):
    """The whole table."""

    schema_version: int
    rows: int
    answered: int
    answered_frac: float
    coverage_frac: float | None
    groups: tuple[ScoreGroup, ...]
    worst: tuple[Checked, ...]
    unanswered: tuple[NoAnswer, ...]
    checked: tuple[Checked, ...]
