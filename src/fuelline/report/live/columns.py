"""The columns of a running job: what each shows, by what it sorts, from which width it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.diagnosis.live import RankRow

UNKNOWN = "-"
_LONG_S = 59.95


@dataclass(frozen=True)
class Column:
    """One column of the table of training processes."""

    name: str
    width: int
    value: Callable[[RankRow], float | None]
    show: Callable[[float], str]
    from_width: int = 0
    """Narrowest screen that has room for it."""


def brief(seconds: float) -> str:
    """A duration in at most 7 characters: `95.2 ms`, `1.2 s`, `95 s`, `2.5 h`."""
    if seconds < _LONG_S:
        return duration(seconds)
    return f"{seconds:.0f} s" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def pace(per_second: float) -> str:
    """`12.4`, `0.08`, `3,120`."""
    if per_second >= 99.95:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= 0.995 else f"{per_second:.2g}"


RANK = Column("rank", 4, lambda row: row.rank, lambda value: f"{value:.0f}")
COLUMNS = (
    RANK,
    Column("pid", 7, lambda row: row.pid, lambda value: f"{value:.0f}"),
    Column("steps", 8, lambda row: row.steps, lambda value: f"{value:,.0f}"),
    Column("steps/s", 7, lambda row: row.steps_per_s, pace),
    Column("samples/s", 9, lambda row: row.samples_per_s, pace, from_width=100),
    Column("mean", 7, lambda row: row.step_mean_s, brief),
    Column("p95", 7, lambda row: row.step_p95_s, brief),
    Column("input", 5, lambda row: row.frac("input"), percent),
    Column("compute", 7, lambda row: row.frac("compute"), percent, from_width=100),
)
"""Right-aligned numbers; the bar and the present phase follow them."""


def columns_for(rows: list[RankRow], width: int) -> list[Column]:
    """Those that fit; the rank only if some process knows its own."""
    return [
        column
        for column in COLUMNS
        if column.from_width <= width
        and (column is not RANK or any(row.rank is not None for row in rows))
    ]


def sort_rows(rows: list[RankRow], column: Column, *, reverse: bool) -> list[RankRow]:
    """By a column, what is unknown last either way; equal ones by rank and pid."""
    ordered = sorted(rows, key=lambda row: (row.rank is None, row.rank or 0, row.pid))
    known = [row for row in ordered if column.value(row) is not None]
    unknown = [row for row in ordered if column.value(row) is None]
    return sorted(known, key=lambda row: column.value(row) or 0, reverse=reverse) + unknown
