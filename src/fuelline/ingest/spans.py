"""Spans as files give them: those that can be believed, and columns that fit their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.trace import Quality
from fuelline.timeline.tables import MOST_NS
from fuelline.timeline.trace import complete

if TYPE_CHECKING:
    from fuelline.ingest.importer import PartWriter


def keep_sane(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Events that do not end before they start, and how many others there were.

    | start | end |      | start | end |
    | 10    | 20  |  ->  | 10    | 20  |   and 1
    | 30    | 25  |
    """
    start, end = pl.col("start_ns"), pl.col("end_ns")
    sane = start.is_between(-MOST_NS, MOST_NS) & end.is_between(-MOST_NS, MOST_NS) & (end >= start)
    kept = frame.filter(sane)
    return kept, frame.height - kept.height


def describe_insane(count: int) -> list[Quality]:
    """What events that end before they start cost; nothing if there are none."""
    if not count:
        return []
    return [
        Quality(
            problem=f"{count} events end before they start, or are centuries away; left out",
            forbids="totals that would contain them",
            code="insane",
        )
    ]


def write(writer: PartWriter, table: str, rank: int, frame: pl.DataFrame) -> None:
    """One part, if it has rows, in the types of its table; what does not fit is null."""
    if frame.height:
        writer.add(table, rank, complete(table, frame))
