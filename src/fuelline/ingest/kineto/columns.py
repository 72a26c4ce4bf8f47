"""Decoded events in, columns out: the device's, the host's, and operators whose work is known.

Built list by list, because a comprehension over thousands of structs costs less than one over
rows; what can be done with whole columns waits for `numbers.settle`, when many pieces have come
together. bench/trace_import.py measures what it costs.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.ingest.kineto.events import decode_op_args
from fuelline.ingest.kineto.numbers import floats, ints, moments
from fuelline.ingest.kineto.shapes import COUNTERS
from fuelline.ingest.name_book import NameBook
from fuelline.schema.trace import CopyDirection, DeviceKind
from fuelline.signals.trace.names import is_communicating

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.ingest.kineto.decode import Sort
    from fuelline.ingest.kineto.events import Args, Number

_DIRECTIONS = (
    ("HtoD", CopyDirection.HOST_TO_DEVICE),
    ("DtoH", CopyDirection.DEVICE_TO_HOST),
    ("DtoD", CopyDirection.DEVICE_TO_DEVICE),
    ("PtoP", CopyDirection.PEER),
)
_DTYPE_BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Double": 8, "Int": 4, "Long": 8}
_DTYPE_BYTES |= {"Byte": 1, "Char": 1, "Bool": 1}
STEP_MARK = "ProfilerStep"
_DIGITS = re.compile(r"\d{1,18}")
_MOST_DIGITS = 19


class Names(NameBook):
    """Texts to numbers, in the order of appearance."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[int, int] = {}
        """Names of the profiler's own steps to their numbers."""
        self.counted: set[int] = set()
        """Names of operators whose work can be counted."""
        self.special: set[int] = set()
        """These, and operators that kernels may have to be traced back to."""

    def number(self, text: str) -> int:
        """The number of a text that is new or long."""
        found = super().number(text)
        mark, _, step = text.partition("#")
        if mark == STEP_MARK and step.isdecimal() and len(step) < _MOST_DIGITS:
            self.steps[found] = int(step)
        if text in COUNTERS:
            self.counted.add(found)
        if text in COUNTERS or is_communicating(text):
            self.special.add(found)
        return found

    def find(self, names: Sequence[str]) -> list[int]:
        """Numbers of these names."""
        known = self.numbers
        try:
            return list(map(known.__getitem__, names))
        except KeyError:
            found = {name: self.number(name) for name in dict.fromkeys(names)}
            return list(map(found.__getitem__, names))


class Book:
    """What is carried from one piece to the next."""

    def __init__(self) -> None:
        self.names = Names()
        self.threads: dict[str, int] = {}
        """Threads that have a name instead of a number."""


def device_frame(events: Sequence[Any], kind: int, book: Book) -> pl.DataFrame:
    """Columns of the `device` table, times not settled yet; those that say nothing are left out."""
    args = [event.args for event in events]
    texts = [event.name for event in events]
    names = book.names
    columns = {
        **moments([event.ts for event in events], [event.dur for event in events]),
        "device": _first([a.device for a in args], events, "pid"),
        "stream": _first([a.stream for a in args], events, "tid"),
        "name": pl.Series(values=names.find(texts), dtype=pl.UInt32),
        "kind": pl.repeat(kind, len(events), dtype=pl.UInt8, eager=True),
        "correlation": ints([a.correlation for a in args]),
        "external": _first([a.external for a in args], args, "external_old"),
        "size_bytes": ints(_sizes(args)),
        "direction": pl.Series(
            values=[_direction(text) if kind == _COPY else None for text in texts], dtype=pl.UInt8
        ),
        "blocks": ints(_products([a.grid for a in args])),
        "threads": ints(_products([a.block for a in args])),
        "registers": ints([a.registers for a in args]),
        "shared_bytes": ints([a.shared for a in args]),
        "occupancy": floats([a.occupancy for a in args]),
        "graph": ints([a.graph for a in args]),
        "group": pl.Series(
            values=[None if a.group is None else names.number(str(a.group)) for a in args],
            dtype=pl.UInt32,
        ),
        "sequence": ints([a.sequence for a in args]),
    }
    return pl.DataFrame(columns)


_COPY = int(DeviceKind.COPY)


class HostColumns:
    """Columns of the `host` table for one sort of events, piece by piece.

    The values are taken out of the events at once, while these are in the processor's cache.
    """

    def __init__(self, sort: Sort, book: Book) -> None:
        self._sort = sort
        self._book = book
        self._clear()

    def _clear(self) -> None:
        self._starts: list[Any] = []
        self._lengths: list[Number] = []
        self._threads: list[Number] = []
        self._names: list[int] = []
        self._correlations: list[Number] = []
        self._external: list[Number] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, events: Sequence[Any]) -> list[Any]:
        """Take over events of a piece; those whose work may count come back."""
        names = self._book.names
        numbers = names.find([event.name for event in events])
        places = [place for place, name in enumerate(numbers) if name in names.special]
        self._names += numbers
        self._starts += [event.ts for event in events]
        self._lengths += [event.dur for event in events]
        self._threads += [event.tid for event in events]
        if self._sort.has_args:
            args = [event.args for event in events]
            self._correlations += [each.correlation for each in args]
            self._external += external(args)
        else:
            self._external += _outside(events, places)
        return [events[place] for place in places if numbers[place] in names.counted]

    def take(self) -> pl.DataFrame:
        """What has come together, times not settled yet; the columns are empty afterwards."""
        height = len(self)
        linked = self._correlations or [None] * height
        frame = pl.DataFrame(
            {
                **moments(self._starts, self._lengths),
                "thread": _threads(self._threads, self._book.threads),
                "name": pl.Series(values=self._names, dtype=pl.UInt32),
                "kind": pl.repeat(self._sort.kind, height, dtype=pl.UInt8, eager=True),
                "correlation": ints(linked),
                "external": ints(self._external),
            }
        )
        self._clear()
        return frame


def _outside(events: Sequence[Any], places: list[int]) -> list[Number]:
    """The operators' own numbers, of those that somebody may ask for."""
    found: list[Number] = [None] * len(events)
    for place in places:
        found[place] = external([decode_op_args(events[place].args)])[0]
    return found


def external(args: Sequence[Any]) -> list[Number]:
    """The operator's number under its new or its old key."""
    return [
        getattr(each, "external_old", None) if each.external is None else each.external
        for each in args
    ]


def _first(values: list[Number], others: Sequence[Any], field: str) -> pl.Series:
    """Whole numbers; where there is none, a field of the other struct."""
    found = ints(values)
    if not found.null_count():
        return found
    return ints(
        [getattr(b, field) if a is None else a for a, b in zip(values, others, strict=True)]
    )


def _threads(values: Sequence[Number], threads: dict[str, int]) -> pl.Series:
    """Thread ids; names of threads get negative numbers of their own."""
    if isinstance(values[0], str):
        return ints([_thread(str(value), threads) for value in values])
    found = ints(values)
    if found.null_count():
        return ints([_thread(str(value), threads) for value in values])
    return found


def _thread(text: str, threads: dict[str, int]) -> int:
    is_id = text.isdecimal() and len(text) < _MOST_DIGITS
    return int(text) if is_id else threads.setdefault(text, -1 - len(threads))


def _sizes(args: Sequence[Args]) -> list[Number]:
    """Bytes of copies, and of what collectives move."""
    return [a.size if a.elements is None else _moved(a) for a in args]


def _moved(args: Args) -> Number:
    known = isinstance(args.elements, int) and args.dtype in _DTYPE_BYTES
    return args.elements * _DTYPE_BYTES[args.dtype or ""] if known else args.size  # type: ignore[operator]


def _direction(name: str) -> int:
    return next((int(way) for word, way in _DIRECTIONS if word in name), int(CopyDirection.UNKNOWN))


def _products(sizes: Sequence[list[int] | str | None]) -> list[Number]:
    try:
        return [None if each is None else each[0] * each[1] * each[2] for each in sizes]  # type: ignore[operator]
    except (TypeError, IndexError):
        return [_product(each) for each in sizes]


def _product(sizes: list[int] | str | None) -> int | None:
    if sizes is None:
        return None
    words = sizes if isinstance(sizes, list) else [int(word) for word in _DIGITS.findall(sizes)]
    return prod(words) if words else None
