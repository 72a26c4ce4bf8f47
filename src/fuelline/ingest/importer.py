"""What an importer of a foreign format is, and how it hands over what it read.

An importer recognises its format by the first bytes, never by the file's name, and writes tables
in parts, so that a trace need not fit in memory. It may serve several ranks from one file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import polars as pl

    from fuelline.schema.run.trace import Quality, RankFacts, SourceFacts

HEAD_BYTES = 64 * 1024
"""What `recognises` gets to see, unpacked if the file is packed."""


class PartWriter(Protocol):
    """Where an importer leaves its tables."""

    def add(self, table: str, rank: int, frame: pl.DataFrame) -> None:
        """One part of a table of TRACE_TABLES; parts of a rank keep the order of these calls."""
        ...


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What one file gave beside its tables."""

    source: SourceFacts
    ranks: list[RankFacts]
    quality: list[Quality] = field(default_factory=list)


class Importer(Protocol):
    """One foreign format."""

    @property
    def format(self) -> str:
        """One word: `kineto`, `nsys`, ..."""
        ...

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes is of this format."""
        ...

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """Read all of a file. Raises InputError with the file and the byte where it went wrong.

        `rank` is the file's place among its sisters, for formats that do not name the rank.
        `partial` accepts a file that ends too early; what is missing then is stated as Quality.
        `advance` gets how many more bytes of the file were read.
        """
        ...
