"""The tables of an imported trace, one set a rank; all times are integer nanoseconds.

Importers fill them in parts of any size and order; readers ask for a table of a rank and get all
of its columns, null where the format does not say. Names are numbers within a rank, so that ranks
can be imported side by side; `names` tells them. A rank's events are on that rank's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from fuelline.schema.run.recording import RunFacts
    from fuelline.schema.run.trace import TraceFacts

TRACE_TABLES: Mapping[str, Mapping[str, pl.DataType]] = {
    "device": {
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.UInt32(),
        "kind": pl.UInt8(),  # DeviceKind
        "correlation": pl.Int64(),  # the runtime call that launched it has the same
        "external": pl.Int64(),  # the operator that it belongs to has the same
        "size_bytes": pl.Int64(),  # of a copy, a set, or what a collective moves
        "direction": pl.UInt8(),  # CopyDirection
        "blocks": pl.Int64(),  # of the grid, all dimensions multiplied
        "threads": pl.Int32(),  # of one block
        "registers": pl.Int32(),  # of one thread
        "shared_bytes": pl.Int32(),  # of one block
        "occupancy": pl.Float32(),  # 0 to 1, as the profiler estimates it
        "graph": pl.Int64(),  # of the graph that launched it
        "group": pl.UInt32(),  # name of the process group of a collective
        "sequence": pl.Int64(),  # of a collective within its group
    },
    "host": {
        "thread": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.UInt32(),
        "kind": pl.UInt8(),  # HostKind
        "correlation": pl.Int64(),
        "external": pl.Int64(),
    },
    "steps": {"step": pl.Int64(), "start_ns": pl.Int64(), "end_ns": pl.Int64()},
    "ops": {
        "external": pl.Int64(),
        "start_ns": pl.Int64(),
        "flops": pl.Float64(),
        "least_bytes": pl.Float64(),  # inputs and outputs once: what must go through memory
        "dtype": pl.String(),
        "end_ns": pl.Int64(),
    },
    "names": {"name": pl.UInt32(), "text": pl.String()},
    "counters": {
        "device": pl.Int32(),
        "at_ns": pl.Int64(),
        "name": pl.String(),
        "value": pl.Float64(),
    },
}
"""`ops`: operators whose work follows from their shapes, or is recorded. `steps`: those that the
trace marks. `counters`: sampled values, of the device or of the host (device null)."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """An imported run: facts at hand, tables loaded a rank at a time."""

    run: RunFacts
    facts: TraceFacts
    load: Callable[[str, int, Sequence[str]], Iterable[pl.DataFrame]]
    """Table, rank and columns in, parts of it out, one at a time; they may have more columns, and
    those they lack are added as null."""

    @property
    def ranks(self) -> list[int]:
        """In ascending order."""
        return sorted(rank.rank for rank in self.facts.ranks)

    def table(self, name: str, rank: int) -> pl.DataFrame:
        """One of TRACE_TABLES for one rank, with all its columns; empty if there is nothing."""
        parts = list(self.parts(name, rank))
        return pl.concat(parts) if parts else pl.DataFrame(schema=dict(TRACE_TABLES[name]))

    def parts(
        self, name: str, rank: int, columns: Sequence[str] | None = None
    ) -> Iterator[pl.DataFrame]:
        """The same piece by piece, for tables that may not fit in memory; only these columns."""
        wanted = list(TRACE_TABLES[name]) if columns is None else columns
        for part in self.load(name, rank, wanted):
            yield complete(name, part, wanted)

    def texts(self, rank: int) -> dict[int, str]:
        """Name numbers of a rank to their texts."""
        return dict(self.table("names", rank).iter_rows())


def complete(name: str, frame: pl.DataFrame, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The frame with every column of its table, or these, in order and in its type."""
    kinds = TRACE_TABLES[name]
    present = frame.schema
    return frame.select(
        pl.col(column).cast(kinds[column], strict=False)
        if column in present
        else pl.lit(None, kinds[column]).alias(column)
        for column in (kinds if columns is None else columns)
    )


def in_memory(
    run: RunFacts, facts: TraceFacts, frames: Mapping[tuple[str, int], pl.DataFrame]
) -> Trace:
    """A trace of frames by table and rank, for tests and for what never touches a disk."""

    def load(name: str, rank: int, _: Sequence[str]) -> list[pl.DataFrame]:
        found = frames.get((name, rank))
        return [] if found is None else [found]

    return Trace(run=run, facts=facts, load=load)
