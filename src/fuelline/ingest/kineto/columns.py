"""Decoded events in, columns out: the device's, the host's, and operators whose work is known.

Built list by list, because a comprehension over ten thousand structs costs less than one over
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

    from fuelline.ingest.kineto.decode import Batch
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
            return [known[name] for name in names]
        except KeyError:
            return [self.number(name) for name in names]


class Book:
    """What is carried from one piece to the next."""

    def __init__(self) -> None:
        self.names = Names()
        self.threads: dict[str, int] = {}
        """Threads that have a name instead of a number."""


def device_frame(batch: Batch, book: Book) -> pl.DataFrame:
    """Columns of the `device` table, times not settled yet; those that say nothing are left out."""
    events = batch.device
    args = [event.args for event in events]
    texts = [event.name for event in events]
    names = book.names
    columns = {
        **moments([event.ts for event in events], [event.dur for event in events]),
        "device": _first([a.device for a in args], events, "pid"),
        "stream": _first([a.stream for a in args], events, "tid"),
        "name": pl.Series(values=names.find(texts), dtype=pl.UInt32),
        "kind": pl.Series(values=batch.device_kinds, dtype=pl.UInt8),
        "correlation": ints([a.correlation for a in args]),
        "external": _first([a.external for a in args], args, "external_old"),
        "size_bytes": ints(_sizes(args)),
        "direction": pl.Series(
            values=[
                _direction(text) if kind == _COPY else None
                for text, kind in zip(texts, batch.device_kinds, strict=True)
            ],
            dtype=pl.UInt8,
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


def host_frame(batch: Batch, book: Book) -> tuple[pl.DataFrame, list[Any]]:
    """Columns of the `host` table, times not settled yet; and the events whose work may count."""
    events = batch.unlinked + batch.linked
    args = [event.args for event in batch.linked]
    numbers = book.names.find([event.name for event in events])
    blank: list[Number] = [None] * len(batch.unlinked)
    special = book.names.special
    places = [place for place, name in enumerate(numbers) if name in special] if special else []
    outside = _outside(batch, places)
    columns = {
        **moments([event.ts for event in events], [event.dur for event in events]),
        "thread": _threads([event.tid for event in events], book.threads),
        "name": pl.Series(values=numbers, dtype=pl.UInt32),
        "kind": pl.Series(values=batch.unlinked_kinds + batch.linked_kinds, dtype=pl.UInt8),
        "correlation": ints(blank + [getattr(each, "correlation", None) for each in args]),
        "external": ints(outside + external(args)),
    }
    counted = book.names.counted
    return pl.DataFrame(columns), [events[place] for place in places if numbers[place] in counted]


def _outside(batch: Batch, places: list[int]) -> list[Number]:
    """The operators' own numbers, of those that somebody may ask for."""
    found: list[Number] = [None] * len(batch.unlinked)
    for place in places:
        if place < len(found):
            found[place] = external([decode_op_args(batch.unlinked[place].args)])[0]
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
