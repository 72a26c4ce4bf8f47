"""Tables of what the observer saw, with as many rows as a diagnosis can afford, however long a run.

The observer writes a row a second for every thread, counter and device: millions in a day. Beyond a
number of rows, those of several seconds are joined to one, and of more seconds the longer the run:

- how often something was seen adds up, so totals and shares stay what they were
- of counters and levels the last reading of each stretch is kept; growth stays what it was
- of stack samples whole bursts are kept, chosen by their time alone; their shares stay about so

Rows that are added may come in pieces: no more than twice the limit is ever in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.recording import Blindspot
from fuelline.schema.units import duration
from fuelline.timeline.tables import TABLES, empty_table

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_ROWS = 200_000
"""Of one table: an hour of fifty threads, and some 12 MB (bench/day.py)."""
MOST_STACKS = 20_000
"""Likewise of stacks, a row of which takes a kilobyte."""
_FIRST_NS = 2 * 10**9
"""The shortest stretch: windows are one second long."""
_LONGEST_NS = 1 << 42
"""Longer ones, over an hour, would not help; what is too much even so is refused for its memory."""
_SUMMED = {
    "states": ("window_ns", ("count",)),
    "others": (
        "at_ns",
        ("interval_ns", "cpu_ns", "disk_read_bytes", "disk_write_bytes", "calls", "blocked"),
    ),
}
"""Time, and what adds up; -1, which the kernel's refusals are, stays -1."""
_MOST: dict[pl.DataType, int] = {pl.Int32(): (1 << 31) - 1}
_LAST = {
    "clocks": ("pid", "tid"),
    "processes": ("pid",),
    "host": ("name",),
    "devices": ("device", "name"),
}
"""Whose readings they are."""


class BoundedTable:
    """One of the observer's tables; rows come in the order of time, a piece after the other."""

    def __init__(self, name: str, most_rows: int | None = None) -> None:
        self.joined_ns = 0
        """How long the stretches are whose rows were joined; 0 if all rows were kept."""
        self.rows = 0
        """How many were added."""
        self._name = name
        self._most_rows = most_rows or (MOST_STACKS if name == "stacks" else MOST_ROWS)
        self._pieces: list[pl.DataFrame] = []
        self._height = 0

    def add(self, piece: pl.DataFrame) -> None:
        """Take more rows."""
        self.rows += piece.height
        self._height += piece.height
        self._pieces.append(piece)
        if self._height > self._most_rows and _has_rule(self._name):
            self._shrink()

    def frame(self) -> pl.DataFrame:
        """The table."""
        if self.joined_ns:
            self._join()
        return pl.concat(self._pieces) if self._pieces else empty_table(self._name)

    def describe(self) -> str:
        """What was done to it."""
        if self._name == "stacks":
            return f"stacks (1 of {_parts(self.joined_ns)} bursts is kept)"
        return f"{self._name} over {duration(self.joined_ns / 1e9)}"

    def _shrink(self) -> None:
        """To half of what is allowed, so that it is not done again for every piece."""
        if self.joined_ns:
            self._join()
        while self._height > self._most_rows // 2 and self.joined_ns < _LONGEST_NS:
            self.joined_ns = max(_FIRST_NS, 2 * self.joined_ns)
            self._join()

    def _join(self) -> None:
        joined = join_rows(self._name, pl.concat(self._pieces), self.joined_ns)
        self._pieces, self._height = [joined], joined.height


def _parts(joined_ns: int) -> int:
    """Of how many bursts of stack samples one is kept."""
    return joined_ns // _FIRST_NS * 2


def _has_rule(name: str) -> bool:
    return name in _SUMMED or name in _LAST or name == "stacks"


def join_rows(name: str, frame: pl.DataFrame, joined_ns: int) -> pl.DataFrame:
    """One row for the rows of a stretch of time that are about the same.

    | window_ns | tid | state | count |      | window_ns | tid | state | count |   of 4 s
    | 8         | 1   | read  | 3     |  ->  | 8         | 1   | read  | 5     |
    | 9         | 1   | read  | 2     |
    """
    if name == "stacks":
        return frame.filter(pl.col("from_ns").hash(seed=0) % _parts(joined_ns) == 0)
    if name in _LAST:
        stretch = (pl.col("at_ns") // joined_ns).alias("stretch")
        keys = ("stretch", *_LAST[name])
        last = frame.with_columns(stretch).unique(keys, keep="last", maintain_order=True)
        return last.drop("stretch")
    time, values = _SUMMED[name]
    kinds = TABLES[name]
    keys = tuple(column for column in kinds if column not in values)
    added = [
        pl.col(value).cast(pl.Int64).sum().clip(-1, _MOST.get(kinds[value])).cast(kinds[value])
        for value in values
    ]
    stretches = frame.with_columns(pl.col(time) // joined_ns * joined_ns)
    return stretches.group_by(keys, maintain_order=True).agg(added).select(*kinds)


def state_joined(tables: Iterable[BoundedTable]) -> list[Blindspot]:
    """What it costs that rows were joined; nothing if none were."""
    joined = [table for table in tables if table.joined_ns]
    if not joined:
        return []
    rows = sum(table.rows for table in joined)
    how = [table.describe() for table in joined]
    return [
        Blindspot(
            what="what the observer saw from one second to the next",
            why=f"its {rows:,} rows are too many to judge one by one; joined were {', '.join(how)}",
            forbids="what happened in a single second; totals and shares are those of the run",
        )
    ]
