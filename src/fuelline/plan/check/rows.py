"""A table of measurements, row by row; a cell that says nothing is None, never a zero.

The columns are those of our own table of published measurements: id, kind, model, params_b,
active_params_b, hardware, n_gpus, tp, pp, dp, ep, precision, batch_or_concurrency, input_len,
output_len, metric, value, unit, source, confidence, notes, regime. Only kind, model, hardware,
metric and value are needed.
"""

from __future__ import annotations

import csv
import io
import math
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.errors import InputError
from fuelline.schema.files import read_given

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = ("model", "hardware", "metric", "value")
_MULTIPLES = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


class Row(Struct, frozen=True, kw_only=True):
    """One measurement as its source states it."""

    id: str
    kind: str
    model: str
    hardware: str
    metric: str
    value: float
    unit: str = ""
    params_b: float | None = None
    active_params_b: float | None = None
    chips: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    precision: str = ""
    batch: float | None = None
    batch_word: str = ""
    """What the batch cell says if it is not a number: `max`, `low`, `api`."""
    input_len: float | None = None
    output_len: float | None = None
    source: str = ""
    notes: str = ""
    regime: str = "clean"

    @property
    def text(self) -> str:
        """All that describes how it was measured."""
        return f"{self.source} {self.notes} {self.hardware}".lower()


class BadRow(Struct, frozen=True, kw_only=True):
    """A line of the table that is not a measurement, and why."""

    id: str
    reason: str


def read_rows(path: Path) -> list[Row | BadRow]:
    """All lines; a file that is no such table is refused."""
    try:
        table = csv.DictReader(io.StringIO(read_given(path).decode("utf-8-sig"), newline=""))
        names = table.fieldnames or []
        missing = [name for name in NEEDED if name not in names]
        if missing:
            raise InputError(
                f"{path} has no column {', '.join(missing)}, so its rows cannot be checked. The "
                "columns are listed in docs/plan.md."
            )
        return [_read(cells, number) for number, cells in enumerate(table, 1)]
    except OSError as error:
        raise InputError(
            f"cannot read the table {path}: {error.strerror}. Nothing was checked."
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV table: {error}. Nothing was checked.") from error


def _read(cells: dict[str | None, str | None], number: int) -> Row | BadRow:
    said = {str(key): (value or "").strip() for key, value in cells.items() if key}
    name = said.get("id") or f"line {number}"
    value = parse_number(said.get("value", ""))
    if value is None or value <= 0:
        return BadRow(
            id=name, reason=f"its value '{said.get('value', '')}' is not a positive number"
        )
    batch = said.get("batch_or_concurrency", "")
    return Row(
        id=name,
        kind=said.get("kind", "").lower(),
        model=said["model"],
        hardware=said["hardware"],
        metric=said["metric"].lower(),
        value=value,
        unit=said.get("unit", ""),
        params_b=_size(said.get("params_b", "")),
        active_params_b=_size(said.get("active_params_b", "")),
        chips=_count(said.get("n_gpus", "")),
        tp=_count(said.get("tp", "")),
        pp=_count(said.get("pp", "")),
        dp=_count(said.get("dp", "")),
        ep=_count(said.get("ep", "")),
        precision=said.get("precision", ""),
        batch=_size(batch) or None,
        batch_word=batch.lower() if parse_number(batch) is None else "",
        input_len=_size(said.get("input_len", "")),
        output_len=_size(said.get("output_len", "")),
        source=said.get("source", ""),
        notes=said.get("notes", ""),
        regime=said.get("regime", "") or "clean",
    )


def parse_number(text: str) -> float | None:
    """`1,024`, `4k`, `1.5T`, `~200`, `128-256` (its middle); None if it is none of these."""
    word = text.strip().lower().replace(",", "").replace("_", "").lstrip("~<>=")
    span = re.fullmatch(r"([\d.]+)\s*(?:-|to|\.\.)\s*([\d.]+)", word)
    try:
        if span:
            number = math.sqrt(float(span[1]) * float(span[2]))
        elif word and word[-1] in _MULTIPLES and word[:-1]:
            number = float(word[:-1]) * _MULTIPLES[word[-1]]
        else:
            number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _size(text: str) -> float | None:
    """A number that cannot be below zero; what is says nothing."""
    number = parse_number(text)
    return None if number is None or number < 0 else number


def _count(text: str) -> int | None:
    """A degree: `8`, `8.0`, `TP8`, `8x`; None for what is blank, `none` or below one."""
    found = re.search(r"\d+(?:\.\d+)?", text.replace(",", ""))
    if not found:
        return None
    count = int(float(found[0]))
    return count if 1 <= count <= 1_000_000 else None
