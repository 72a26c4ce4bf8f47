"""Parquet files that may come from anybody: a table in memory, or an error that says why not.

A few kilobytes of Parquet can hold billions of equal rows, and what the end of the file says of
them may be a lie. Here the claims are checked, which costs nothing; what lies about itself meets
the bound that the command line sets on its own memory (cli/bounded.py).
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.errors import DamagedRecordingError
from fuelline.schema.files import read_below

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fuelline.schema.run.recording import TableFacts

SUFFIX = ".parquet"
MOST_TABLE_BYTES = 4 << 30
DAMAGE = (
    "The run cannot be diagnosed from this copy, and nothing was changed. Copy the folder again, "
    "or record again with `fuelline run`."
)
ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, MemoryError)
"""What polars answers to a file that is none; a panic is no Exception."""
_SURE_ROWS = 1_000_000
_ROWS_PER_BYTE = 64
"""Rows have times, so an hour of steps takes ten bytes per row (bench/hour.py), and a second of
equal ones a tenth of that."""


def find_bomb(data: bytes) -> int | None:
    """The number of rows that a file claims, if no file of its size can hold them; else None."""
    rows = int(pl.scan_parquet(io.BytesIO(data)).select(pl.len()).collect().item())
    return rows if rows > _SURE_ROWS + _ROWS_PER_BYTE * len(data) else None


def read_table(
    run_dir: Path, name: str, facts: TableFacts, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """A table of a run, whole and as it was written; only these columns, those that it has."""
    file = f"{name}{SUFFIX}"
    path = run_dir / file
    try:
        data = read_below(run_dir, file, MOST_TABLE_BYTES)
    except OSError as error:
        raise DamagedRecordingError(f"{path}: {error.strerror}. {DAMAGE}") from None
    if len(data) != facts.size_bytes or zlib.crc32(data) != facts.crc32:
        raise DamagedRecordingError(
            f"{path} was altered or cut short: {len(data)} bytes of {facts.size_bytes}, "
            f"checksum {zlib.crc32(data):08x} instead of {facts.crc32:08x}. {DAMAGE}"
        )
    try:
        bomb = find_bomb(data)
        if bomb is None:
            there = pl.read_parquet_schema(data)
            wanted = [column for column in there if columns is None or column in columns]
            return pl.read_parquet(data, columns=wanted)
    except ERRORS as error:
        raise DamagedRecordingError(
            f"{path} is not a whole Parquet file ({brief(error)}). {DAMAGE}"
        ) from None
    raise DamagedRecordingError(
        f"{path} claims {bomb} rows in {len(data)} bytes, which no recording does: it would fill "
        f"the memory. {DAMAGE}"
    )


def brief(error: BaseException) -> str:
    """The first line of what a library says, at most a hundred characters of it."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:100]
