"""What a file for Perfetto is made of: tracks of spans, of instants, of values over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Things that lasted, on one line of the screen; partial overlaps get lines of their own."""

    process: str
    """The group that it is shown in."""
    name: str
    frame: pl.DataFrame
    """start_ns, end_ns, name; every other column is shown as a detail where it is not null."""
    category: str = "fuelline"
    """Perfetto's, by which our importer separates kernels from calls; a column `category` wins."""


@dataclass(frozen=True, kw_only=True)
class Instants:
    """Things that happened."""

    process: str
    name: str
    frame: pl.DataFrame
    """at_ns, name, details as in Spans."""


@dataclass(frozen=True, kw_only=True)
class Values:
    """A number that changes."""

    process: str
    name: str
    frame: pl.DataFrame
    """at_ns, value."""


Track = Spans | Instants | Values
