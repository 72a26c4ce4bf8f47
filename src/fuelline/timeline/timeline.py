"""The Timeline: immutable columns of everything a run left behind, wherever it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from fuelline.timeline.tables import TABLES, empty_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.run.recording import (
        Blindspot,
        Excerpts,
        LoaderFacts,
        ProcessFacts,
        RunFacts,
    )
    from fuelline.schema.run.samples import DeviceSeen, Limits


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """All events and samples of one run on one clock, with what the run says about itself."""

    run: RunFacts
    tables: Mapping[str, pl.DataFrame]
    loaders: tuple[LoaderFacts, ...] = ()
    processes: tuple[ProcessFacts, ...] = ()
    limits: tuple[Limits, ...] = ()
    blindspots: tuple[Blindspot, ...] = ()
    source_lines: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[DeviceSeen, ...] = ()
    """One a device, in the driver's order; empty without accelerators or a way to ask them."""
    excerpts: Excerpts | None = None
    """What the tables hold of the run, and how their clock runs; None if they hold all of it."""

    @property
    def kept_frac(self) -> float:
        """Of the growth of a counter: goes with the time that the tables hold."""
        return 1.0 if self.excerpts is None else self.excerpts.kept_frac

    @property
    def ended_ns(self) -> int | None:
        """When the run ended, on the clock of the tables."""
        ended_ns = self.run.ended_ns
        if ended_ns is None or self.excerpts is None:
            return ended_ns
        return self.excerpts.fold(ended_ns)

    def table(self, name: str) -> pl.DataFrame:
        """One of `TABLES`, empty if nothing was recorded for it."""
        found = self.tables.get(name)
        return empty_table(name) if found is None else found

    def limits_within(self, start_ns: int, end_ns: int) -> Limits | None:
        """What held for most of that time: before and after it the job may be other processes."""
        ends = [limits.at_ns for limits in self.limits[1:]] + [end_ns]
        held = [
            min(until, end_ns) - max(limits.at_ns, start_ns)
            for limits, until in zip(self.limits, ends, strict=False)
        ]
        return self.limits[held.index(max(held))] if held else None

    def check(self) -> None:
        """Raise if a table lacks a column or an event ends before it starts."""
        for name, frame in self.tables.items():
            if dict(frame.schema) != dict(TABLES[name]):
                raise ValueError(f"table {name} has columns {frame.schema}")
        if self.table("events").filter(pl.col("dur_ns") < 0).height:
            raise ValueError("an event ends before it starts")
