"""Events of the device in, columns of the `device` table out; those that say nothing are null.

Built list by list, because a comprehension over a thousand structs costs less than one over rows.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.ingest.kineto.numbers import exact_starts, floats, ints, moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.ingest.kineto.events import Args, Number
    from fuelline.ingest.kineto.scan_state import ScanState

DTYPE_BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Double": 8, "Int": 4, "Long": 8}
DTYPE_BYTES |= {"Byte": 1, "Char": 1, "Bool": 1}
_DIGITS = re.compile(r"\d{1,18}")


class DeviceColumns:
    """Events of one kind that wait to become columns."""

    def __init__(self, book: ScanState) -> None:
        self._book = book
        self._events: list[Any] = []
        self._places: list[int] = []

    def __len__(self) -> int:
        return len(self._events)

    def add(self, events: Sequence[Any], places: list[int], *, exact: bool) -> list[Any]:
        """Take over events that stand at these places of the file."""
        del exact  # known from the events when they become columns
        self._events += events
        self._places += places
        return []

    def take(self, *, exact: bool) -> pl.DataFrame:
        """What has come together; nothing is left afterwards."""
        events, places = self._events, self._places
        self._events, self._places = [], []
        starts = [event.ts for event in events]
        found = moments(
            exact_starts(starts) if exact else starts, [event.dur for event in events], exact=exact
        )
        self._book.negative += found.negative
        return pl.DataFrame(
            {
                "at": pl.Series(values=places, dtype=pl.Int64),
                **found.columns,
                **_columns(events, [event.args for event in events], self._book),
            }
        )


def _columns(events: Sequence[Any], args: Sequence[Args], book: ScanState) -> dict[str, pl.Series]:
    names = book.names
    groups = [None if a.group is None else names.number(str(a.group)) for a in args]
    return {
        "device": _first([a.device for a in args], events, "pid"),
        "stream": _first([a.stream for a in args], events, "tid"),
        "name": pl.Series(values=names.find([event.name for event in events]), dtype=pl.Int64),
        "correlation": ints([a.correlation for a in args]),
        "external": _first([a.external for a in args], args, "external_old"),
        "size_bytes": ints(_sizes(args)),
        "blocks": ints(_products([a.grid for a in args])),
        "threads": ints(_products([a.block for a in args])),
        "registers": ints([a.registers for a in args]),
        "shared_bytes": ints([a.shared for a in args]),
        "occupancy": floats([a.occupancy for a in args]),
        "graph": ints([a.graph for a in args]),
        "group": pl.Series(values=groups, dtype=pl.Int64),
        "sequence": ints([a.sequence for a in args]),
    }


def _first(values: list[Number], others: Sequence[Any], field: str) -> pl.Series:
    """Whole numbers; where there is none, a field of the other struct."""
    found = ints(values)
    if not found.null_count():
        return found
    return ints(
        [getattr(b, field) if a is None else a for a, b in zip(values, others, strict=True)]
    )


def _sizes(args: Sequence[Args]) -> list[Number]:
    """Bytes of copies, and of what collectives move."""
    return [a.size if a.elements is None else _moved(a) for a in args]


def _moved(args: Args) -> Number:
    known = isinstance(args.elements, int) and args.dtype in DTYPE_BYTES
    return args.elements * DTYPE_BYTES[args.dtype or ""] if known else args.size  # type: ignore[operator]


def _products(sizes: Sequence[list[int] | str | None]) -> list[Number]:
    return [prod(each) if type(each) is list and each else _product(each) for each in sizes]


def _product(sizes: list[int] | str | None) -> int | None:
    """`[8, 1, 1]` as text."""
    words = [int(word) for word in _DIGITS.findall(sizes)] if isinstance(sizes, str) else []
    return prod(words) if words else None
