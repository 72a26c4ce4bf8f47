"""Events of the host in, columns of the `host` table out, and those that are more than a row.

The values are taken out of the events at once, while these are in the processor's cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.ingest.kineto.events import decode_op_args
from fuelline.ingest.kineto.numbers import exact_starts, ints, moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.ingest.kineto.events import Number
    from fuelline.ingest.kineto.scan_state import ScanState


class HostColumns:
    """Columns for one sort of events, piece by piece."""

    def __init__(self, book: ScanState, *, is_linked: bool) -> None:
        self._book = book
        self._is_linked = is_linked
        self._clear()

    def _clear(self) -> None:
        self._places: list[int] = []
        self._starts: list[Any] = []
        self._lengths: list[Number] = []
        self._threads: list[Number] = []
        self._names: list[int] = []
        self._correlations: list[Number] = []
        self._external: list[Number] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, events: Sequence[Any], places: list[int], *, exact: bool) -> list[Any]:
        """Take over events; steps and those whose work may count come back."""
        names = self._book.names
        numbers = names.find([event.name for event in events])
        watched = [place for place, name in enumerate(numbers) if name in names.watched]
        starts = [event.ts for event in events]
        self._places += places
        self._names += numbers
        self._starts += exact_starts(starts) if exact else starts
        self._lengths += [event.dur for event in events]
        self._threads += [event.tid for event in events]
        if self._is_linked:
            args = [event.args for event in events]
            self._correlations += [each.correlation for each in args]
            self._external += external(args)
        else:
            self._correlations += [None] * len(events)
            self._external += _outside(events, [p for p in watched if numbers[p] in names.special])
        return [events[place] for place in watched]

    def take(self, *, exact: bool) -> pl.DataFrame:
        """What has come together; the columns are empty afterwards."""
        found = moments(self._starts, self._lengths, exact=exact)
        self._book.negative += found.negative
        frame = pl.DataFrame(
            {
                "at": pl.Series(values=self._places, dtype=pl.Int64),
                **found.columns,
                "thread": _threads(self._threads, self._book),
                "name": pl.Series(values=self._names, dtype=pl.Int64),
                "correlation": ints(self._correlations),
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
    return [each.external_old if each.external is None else each.external for each in args]


def _threads(values: Sequence[Number], book: ScanState) -> pl.Series:
    if all(type(value) is int for value in values):
        found = ints(values)
        if not found.null_count():
            return found
    return pl.Series(values=[book.find_thread(value) for value in values], dtype=pl.Int64)
