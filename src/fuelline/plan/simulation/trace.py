"""Requests from a file: when they came, how long their prompts and outputs were.

CSV with a header, or one JSON object a line. Columns go by the names that public traces use:

    arrival_s,prompt,output          TIMESTAMP,ContextTokens,GeneratedTokens      (Azure 2023)
    0.00,1024,120                    2023-11-16 18:15:46.6805900,374,44
    {"timestamp": 27482, "input_length": 6955, "output_length": 52}               (Mooncake:
    milliseconds)

Times count from the first request. A line that makes no sense is refused with its number. The file
is read line by line: what is held is the requests, 100 bytes each.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from fuelline.schema.errors import InputError
from fuelline.schema.files import open_below, refuse_holes
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
MOST_BYTES = 256 << 20
MOST_REQUESTS = 1_500_000
"""BurstGPT has 1.43 million in all, Azure's hour of 2023 and Mooncake's some 25,000. Azure's week
of 2024 has more and must be cut: a plan looks at the busiest stretch of a trace alone."""
_MOST_LINE = 1 << 20
"""Characters; a line of Mooncake's has a thousand."""


def read_requests(path: Path) -> list[Request]:
    """In the order of their arrival, the first at time 0."""
    try:
        with _open(path) as file:
            rows = _json_rows if _is_json(path, file) else _table_rows
            same: dict[int, int] = {}  # a length that comes again is one object
            found = [_request(path, line, row, same) for line, row in rows(path, file)]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the trace {path}: {error}. Nothing was simulated; give a CSV with the "
            "columns "
            "arrival_s,prompt,output."
        ) from error
    if not found:
        raise InputError(f"the trace {path} has no requests. Nothing was simulated.")
    found.sort(key=lambda each: each.arrival_s)
    start = found[0].arrival_s
    for at, each in enumerate(found):  # in place: two lists would not fit
        found[at] = Request(each.arrival_s - start, each.prompt, each.output)
    return found


@contextmanager
def _open(path: Path) -> Iterator[io.TextIOWrapper]:
    """Where its links lead to is the user's own word."""
    real = path.resolve()
    with os.fdopen(open_below(real.parent, real.name), "rb") as file:
        refuse_holes(file, real.name)
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB", real.name)
        with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
            yield text


def _lines(path: Path, file: io.TextIOWrapper) -> Iterator[str]:
    """Those of a file of requests, none of them longer or more than can be true."""
    number = 0
    while content := file.readline(_MOST_LINE):
        number += 1
        if len(content) == _MOST_LINE:
            raise _bad(path, number, f"it has {_MOST_LINE} characters or more")
        if number > MOST_REQUESTS + 1:  # with a header
            raise InputError(
                f"the trace {path} has more than {MOST_REQUESTS:,} lines, which is the most that "
                "is read. Nothing was simulated; give its busiest day alone, which is what a plan "
                "is made for."
            )
        yield content


def _is_json(path: Path, file: io.TextIOWrapper) -> bool:
    first = next((content for content in _lines(path, file) if content.strip()), "")
    file.seek(0)
    return first.lstrip().startswith("{")


def _table_rows(path: Path, file: io.TextIOWrapper) -> Iterator[tuple[int, dict[str, object]]]:
    reader = csv.DictReader(_lines(path, file))
    names: dict[str, str] = {}
    try:
        for row in reader:
            if None in row:
                raise _bad(path, reader.line_num, "it has more cells than the header")
            names = names or {key: plain(key) for key in row}
            yield reader.line_num, {names[key]: value for key, value in row.items()}
    except csv.Error as error:
        raise _bad(path, reader.line_num, str(error)) from error


def _json_rows(path: Path, file: io.TextIOWrapper) -> Iterator[tuple[int, dict[str, object]]]:
    for line, content in enumerate(_lines(path, file), start=1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _bad(path, line, str(error)) from error
        if not isinstance(row, dict):
            raise _bad(path, line, "it is not an object")
        yield line, {plain(str(key)): value for key, value in row.items()}


def _request(path: Path, line: int, row: dict[str, object], same: dict[int, int]) -> Request:
    prompt = _tokens(path, line, row, _PROMPTS, "prompt")
    output = _tokens(path, line, row, _OUTPUTS, "output")
    return Request(
        _arrival(path, line, row), same.setdefault(prompt, prompt), same.setdefault(output, output)
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
        f"line {line} of the trace {path} is not a request: {why}. Nothing was simulated; the "
        "columns are "
        "arrival_s,prompt,output."
    )
