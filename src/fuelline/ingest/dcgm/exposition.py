r"""Prometheus' text format: one line a value, read as a stream.

    # HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
    DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-6d5c",modelName="Tesla T4",Hostname="n1"} 91 1699999999

Labels may hold escaped quotes, the time (milliseconds) is optional, and every line ends with a line
feed (https://prometheus.io/docs/instrumenting/exposition_formats): one that does not was cut off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuelline.ingest.unpack import say_byte
from fuelline.schema.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_LONGEST_LINE = 1024 * 1024
_VALUE = re.compile(
    r"^(?P<name>[A-Za-z_:][\w:]*)\s*(?:\{(?P<labels>.*)\})?\s*"
    r"(?P<value>[^\s{}]+)(?:\s+(?P<time>-?\d{1,18}))?\s*$"
)
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    time_ns: int | None


_LONGEST_QUOTE = 120
"""Of what Python says about a value that it quotes in full."""


class CutShortError(InputError):
    """The last line has no end."""


def read_samples(path: Path, blocks: Iterable[bytes]) -> Iterator[Sample]:
    """All values; raises InputError with line and byte where a line is none."""
    for number, at, line in _lines(path, blocks):
        text = line.decode("utf-8", "backslashreplace").strip()
        if text and not text.startswith("#"):
            yield _parse(path, text, number, at)


def _lines(path: Path, blocks: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Number, byte offset and text of each line that ends."""
    number, at, rest = 1, 0, b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield number, at, line
            number += 1
            at += len(line) + 1
        if len(rest) > _LONGEST_LINE:
            raise InputError(
                f"{path}, line {number} ({say_byte(path, at)}): longer than {_LONGEST_LINE} "
                "bytes, which no scrape is. Nothing was imported. Scrape again."
            )
    if rest.strip():
        raise CutShortError(
            f"{path} ends at {say_byte(path, at + len(rest))}, inside line {number}: it was cut "
            "off, and its last value cannot be trusted. Nothing was imported. Scrape again, or add "
            "--partial to leave that line out."
        )


def _parse(path: Path, text: str, number: int, at: int) -> Sample:
    found = _VALUE.match(text)
    try:
        if found is None:
            raise ValueError("it is not `name{labels} value`")  # noqa: TRY301 - reported in one place
        time = found["time"]
        return Sample(
            name=found["name"],
            labels=_read_labels(found["labels"] or ""),
            value=float(found["value"]),
            time_ns=None if time is None else int(time) * 1_000_000,
        )
    except ValueError as error:
        why = str(error)[:_LONGEST_QUOTE]
        where = f"line {number} ({say_byte(path, at)})"
        raise InputError(
            f"{path}, {where}: {why} ({text[:60]!r}). Nothing was imported. Check how it "
            "was saved; `curl -s HOST:9400/metrics > scrape.prom` writes a good one."
        ) from None


def _read_labels(text: str) -> tuple[tuple[str, str], ...]:
    labels, at = [], 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            raise ValueError(f"its labels break off at character {at}")
        labels.append((found[1], _ESCAPE.sub(_unescape, found[2])))
        at = found.end()
    return tuple(labels)


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
