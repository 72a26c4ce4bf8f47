"""Files read by an importer into memory, and the real traces that some tests need.

Real traces lie where FUELLINE_TRACES says, else in a folder beside the project; they are
never copied into it. Tests that need them say so when they are not there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from fuelline.schema.run.recording import RunFacts
from fuelline.schema.run.trace import TraceFacts
from fuelline.timeline.trace import TRACE_TABLES, Trace, complete, in_memory

if TYPE_CHECKING:
    from fuelline.ingest.importer import Imported, Importer

_BESIDE = Path(__file__).parents[4].parent / "shared" / "data" / "traces"
TRACES = Path(os.environ.get("FUELLINE_TRACES", _BESIDE))
RUN = RunFacts(
    run_id="imported", command=["import"], host="here", started_wall_ns=0, started_ns=0, ended_ns=0
)


def real(name: str) -> Path:
    """A real trace; the test is skipped, and says why, where there is none."""
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"no real traces at {TRACES}")
    return path


@dataclass
class Read:
    """What an importer gave."""

    imported: Imported | None = None
    parts: dict[tuple[str, int], list[pl.DataFrame]] = field(default_factory=dict)
    advanced: int = 0

    def add(self, table: str, rank: int, frame: pl.DataFrame) -> None:
        self.parts.setdefault((table, rank), []).append(complete(table, frame))

    def table(self, table: str, rank: int = 0) -> pl.DataFrame:
        """All parts, names told in a column `text`."""
        parts = self.parts.get((table, rank))
        frame = pl.concat(parts) if parts else pl.DataFrame(schema=dict(TRACE_TABLES[table]))
        if table not in ("device", "host"):
            return frame
        names = pl.concat(self.parts["names", rank])
        assert names["name"].n_unique() == names.height
        return frame.join(names, on="name", how="left", maintain_order="left")

    @property
    def trace(self) -> Trace:
        assert self.imported is not None
        frames = {key: pl.concat(parts) for key, parts in self.parts.items()}
        facts = TraceFacts(
            sources=[self.imported.source],
            ranks=self.imported.ranks,
            quality=self.imported.quality,
        )
        return in_memory(RUN, facts, frames)


def read(importer: Importer, path: Path, *, rank: int = 0, partial: bool = False) -> Read:
    """Recognise and read one file."""
    with path.open("rb") as file:
        assert importer.recognises(file.read(64 * 1024))
    result = Read()

    def advance(size_bytes: int) -> None:
        result.advanced += size_bytes

    result.imported = importer.read(path, rank, result, partial=partial, advance=advance)
    return result


def busy_share(spans: list[tuple[int, int]]) -> float:
    """Union over extent, the slow way."""
    spans = sorted(spans)
    covered, until = 0, spans[0][0]
    for start, end in spans:
        covered += max(0, end - max(start, until))
        until = max(until, end)
    return covered / (until - spans[0][0])
