"""A trace read by the compiled scanner and by the readers in Python."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fuelline.schema.errors import InputError
from tests.unit.ingest.kineto.texts import load


def read(path: Path, *, compiled: bool, partial: bool = False) -> dict[str, Any] | None:
    """All tables with names told; None if the file was refused."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        if not compiled:
            patch.setenv("FUELLINE_NO_SCANNER", "1")
        try:
            trace = load(Path(folder), path, partial=partial)
        except InputError:
            return None
        rank = trace.ranks[0]
        texts = trace.texts(rank)
        tables: dict[str, Any] = {
            table: _told(trace.table(table, rank), texts).rows()
            for table in ("device", "host", "steps", "ops")
        }
        return {**tables, "names": sorted(texts.values()), "facts": trace.facts}


def _told(frame: pl.DataFrame, texts: dict[int, str]) -> pl.DataFrame:
    names = [column for column in ("name", "group") if column in frame.columns]
    return frame.with_columns(
        pl.col(names).replace_strict(texts, default=None, return_dtype=pl.String)
    )


def both(path: Path, *, partial: bool = False) -> dict[str, Any] | None:
    """What both make of a file, which must be the same."""
    scanned = read(path, compiled=True, partial=partial)
    in_python = read(path, compiled=False, partial=partial)
    assert scanned == in_python
    return scanned
