"""Execution traces among the files of an import: their shapes go to the operators of their rank."""

from __future__ import annotations

import io
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.importer import HEAD_BYTES
from fuelline.ingest.kineto.execution import fill, find_rank, is_execution_trace, read_works
from fuelline.ingest.recording.folder import write_file
from fuelline.ingest.unpack import read_head
from fuelline.schema.run.recording import TableFacts
from fuelline.schema.run.trace import Quality

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fuelline.ingest.importer import Imported
    from fuelline.ingest.trace_run import WrittenPart


def is_beside(path: Path) -> bool:
    """Whether a file only adds to a trace."""
    try:
        return is_execution_trace(read_head(path, HEAD_BYTES))
    except OSError:
        return False


def pair(paths: Sequence[Path], traces: Sequence[tuple[Path, int]]) -> dict[Path, int]:
    """Execution trace to the place of its trace, of those with their ranks.

    By the rank in its name; the only trace of all, or of its folder, needs no name.
    """
    found: dict[Path, int] = {}
    for path in paths:
        near = [place for place, (trace, _) in enumerate(traces) if trace.parent == path.parent]
        told = find_rank(path)
        by_rank = [place for place, (_, rank) in enumerate(traces) if rank == told]
        for places in (by_rank, near, list(range(len(traces)))):
            if len(places) == 1:
                found.setdefault(path, places[0])
    return found


def add_shapes(
    path: Path,
    imported: Imported,
    parts: list[WrittenPart],
    draft: Path,
    advance: Callable[[int], None],
) -> tuple[Imported, list[WrittenPart]]:
    """A file's facts and parts, with the work that its execution trace tells."""
    works = read_works(path, advance)

    def load(table: str) -> pl.DataFrame:
        frames = [_load(draft, part) for part in parts if part.table == table]
        return pl.concat(frames) if frames else pl.DataFrame()

    ops = [part for part in parts if part.table == "ops"]
    host, names = load("host"), load("names")
    count = 0
    if ops and host.height:
        texts = dict(names.select("name", "text").iter_rows())
        whole, count = fill(load("ops"), host, texts, works)
        first = _store(draft, ops[0], whole)
        others = [_store(draft, part, whole.clear()) for part in ops[1:]]
        changed = {part.draft_name: part for part in (first, *others)}
        parts = [changed.get(part.draft_name, part) for part in parts]
    if count:
        return imported, parts
    unfit = Quality(
        code="execution-trace",
        problem=f"{path.name} holds other operators than the timeline, or as many of none",
        forbids="taking shapes from it: it may be of another run or of other steps",
    )
    has_all = bool(ops) and not load("ops")["flops"].null_count()
    quality = imported.quality if has_all else [*imported.quality, unfit]
    return replace(imported, quality=quality), parts


def _load(draft: Path, part: WrittenPart) -> pl.DataFrame:
    return pl.read_parquet((draft / part.draft_name).read_bytes())


def _store(draft: Path, part: WrittenPart, frame: pl.DataFrame) -> WrittenPart:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=1, statistics=False)
    data = buffer.getvalue()
    (draft / part.draft_name).unlink()
    write_file(draft / part.draft_name, data)
    facts = TableFacts(rows=frame.height, size_bytes=len(data), crc32=zlib.crc32(data))
    return replace(part, facts=facts)
