"""Requests from a file: when they came, how long their prompts and outputs were.

CSV with a header, or one JSON object a line. Columns go by the names that public traces use:

    arrival_s,prompt,output          TIMESTAMP,ContextTokens,GeneratedTokens      (Azure 2023)
    0.00,1024,120                    2023-11-16 18:15:46.6805900,374,44
    {"timestamp": 27482, "input_length": 6955, "output_length": 52}               (Mooncake:
    milliseconds)

Times count from the first request. A line that makes no sense is refused with its number.
"""

from __future__ import annotations

import csv
import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from fuelline.schema.errors import InputError
from fuelline.schema.files import read_given
from fuelline.schema.plan.catalogue import plain
from fuelline.schema.plan.simulated import Request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ARRIVALS = ("arrivals", "arrival", "arrivedat", "time", "timestamps", "starts")
_STAMPS = ("timestamp",)
_PROMPTS = ("prompt", "input", "inputlength", "inputlen", "inputtokens", "prompttokens",
            "contexttokens", "numprefilltokens", "requesttokens", "promptlen", "in")  # fmt: skip
_OUTPUTS = ("output", "outputlength", "outputlen", "outputtokens", "completiontokens",
            "generatedtokens", "numdecodetokens", "responsetokens", "out")  # fmt: skip
_MOST_TOKENS = 10_000_000
MOST_BYTES = 1 << 30
"""Some twenty million requests."""


def read_requests(path: Path) -> list[Request]:
    """In the order of their arrival, the first at time 0."""
    try:
        text = read_given(path, MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the trace {path}: {error}. Nothing was simulated; give a CSV with the "
            "columns "
            "arrival_s,prompt,output."
        ) from error
    rows = _json_rows if text.lstrip().startswith("{") else _table_rows
    found = [_request(path, line, row) for line, row in rows(path, text)]
    if not found:
        raise InputError(f"the trace {path} has no requests. Nothing was simulated.")
    found.sort(key=lambda each: each.arrival_s)
    start = found[0].arrival_s
    return [Request(each.arrival_s - start, each.prompt, each.output) for each in found]


def _table_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, object]]]:
    reader = csv.DictReader(text.splitlines())
    for row in reader:
        if None in row:
            raise _bad(path, reader.line_num, "it has more cells than the header")
        yield reader.line_num, {plain(key): value for key, value in row.items()}


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, object]]]:
    for line, content in enumerate(text.splitlines(), start=1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _bad(path, line, str(error)) from error
        if not isinstance(row, dict):
            raise _bad(path, line, "it is not an object")
        yield line, {plain(str(key)): value for key, value in row.items()}


def _request(path: Path, line: int, row: dict[str, object]) -> Request:
    return Request(
        _arrival(path, line, row),
        _tokens(path, line, row, _PROMPTS, "prompt"),
        _tokens(path, line, row, _OUTPUTS, "output"),
    )


def _arrival(path: Path, line: int, row: dict[str, object]) -> float:
    for name in (*_ARRIVALS, *_STAMPS):
        if name not in row:
            continue
        value = row[name]
        # Mooncake's JSON has whole milliseconds; a table has seconds or a date.
        scale = 1e-3 if name in _STAMPS and isinstance(value, int) else 1.0
        seconds = _seconds(value)
        if seconds is None or not 0 <= seconds < 1e12:
            raise _bad(path, line, f"its time is {value!r}")
        return seconds * scale
    raise _bad(path, line, "no column says when it came (arrival_s)")


def _seconds(value: object) -> float | None:
    """A number, or a date such as `2023-11-16 18:15:46.6805900`."""
    try:
        return float(str(value))
    except ValueError:
        pass
    whole, _, part = str(value).strip().partition(".")
    digits = part.rstrip("Z")
    try:
        stamp = datetime.fromisoformat(whole.rstrip("Z"))
        return stamp.replace(tzinfo=timezone.utc).timestamp() + float(f"0.{digits or 0}")
    except ValueError:
        return None


def _tokens(
    path: Path, line: int, row: dict[str, object], names: tuple[str, ...], what: str
) -> int:
    for name in names:
        if name not in row:
            continue
        try:
            count = int(float(str(row[name])))
        except (ValueError, OverflowError):
            count = -1
        if not 0 <= count <= _MOST_TOKENS:
            raise _bad(path, line, f"its {what} is {row[name]!r} tokens")
        return max(count, 1)
    raise _bad(path, line, f"no column says how long its {what} is")


def _bad(path: Path, line: int, why: str) -> InputError:
    return InputError(
        f"line {line} of the trace {path} is no request: {why}. Nothing was simulated; the columns "
        "are "
        "arrival_s,prompt,output."
    )
