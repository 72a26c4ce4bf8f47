"""How many files the job got from a pack or the cache: a small file of each of its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import ServedFiles
from fuelline.schema.files import list_below, read_below
from fuelline.schema.run.run_folder import SERVED, SERVED_DIR

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MOST_BYTES = 21 * len(SERVED)
_MOST_FILES = 1 << 62
"""More is made up."""


def read_served(run_dirs: Iterable[Path]) -> ServedFiles | None:
    """Over all processes of all hosts; None for a run without --packed and --cache."""
    found = [counts for run_dir in run_dirs for counts in _read_all(run_dir)]
    if not found:
        return None
    totals = [min(sum(each), _MOST_FILES) for each in zip(*found, strict=True)]
    return ServedFiles(**dict(zip(SERVED, totals, strict=True)))


def _read_all(run_dir: Path) -> list[list[int]]:
    try:
        names = [name for name in list_below(run_dir, SERVED_DIR) if name.isdecimal()]
    except OSError:
        return []
    return [counts for name in names if len(counts := _read(run_dir, name)) == len(SERVED)]


def _read(run_dir: Path, name: str) -> list[int]:
    try:
        words = read_below(run_dir, f"{SERVED_DIR}/{name}", _MOST_BYTES).split()
    except OSError:
        return []
    return [int(word) for word in words if word.isdigit()]
