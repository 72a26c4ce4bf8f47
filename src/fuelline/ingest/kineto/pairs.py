"""Events whose beginning and end stand apart (phases B and E): joined into complete ones.

    {"ph": "B", "name": "load", "ts": 10, "tid": 1}   ->   {"ph": "X", "name": "load", "ts": 10,
    {"ph": "E", "ts": 25, "tid": 1}                         "dur": 15, "tid": 1}

As in the trace event format, an end belongs to the last beginning on its thread that has none yet.
PyTorch writes none of them; other writers of Chrome traces do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from fuelline.ingest.kineto.numbers import exact_ns
from fuelline.ingest.kineto.sorts import find_sort
from fuelline.schema.run.trace import Quality

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fuelline.ingest.kineto.decode import Batch

_MOST_OPEN = 100_000
"""Beginnings that wait for their ends; a file with more never ends anything."""


class Pairs:
    """Beginnings of one file that wait for their ends."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], list[Any]] = {}
        self._waiting = 0
        self._lost = 0

    def complete(self, batch: Batch, end: int) -> None:
        """Add to a batch what its halves make of those before; it stands where the piece ends."""
        for event in self.join(batch.halves):
            sort = find_sort(event.cat)
            same = batch.complete.setdefault(sort, [])
            same.append(event)
            if batch.is_scanned:
                batch.places.setdefault(sort, []).append(end)

    def join(self, halves: Sequence[Any]) -> Iterator[Any]:
        """Complete events, in the order of their ends."""
        for half in halves:
            thread = self._open.setdefault((str(half.pid), str(half.tid)), [])
            if half.ph == "B":
                self._begin(thread, half)
            elif thread:
                begun = thread.pop()
                self._waiting -= 1
                length_us = (_moment_ns(half.ts) - _moment_ns(begun.ts)) / 1000
                yield msgspec.structs.replace(begun, ph="X", dur=length_us)
            else:
                self._lost += 1

    def _begin(self, thread: list[Any], half: Any) -> None:
        if self._waiting >= _MOST_OPEN:
            self._lost += 1
            return
        thread.append(half)
        self._waiting += 1

    def judge(self) -> list[Quality]:
        """What could not be joined, once all of the file was read."""
        alone = self._waiting + self._lost
        if not alone:
            return []
        return [
            Quality(
                code="unpaired",
                problem=f"{alone} events have a beginning or an end but not both; left out",
                forbids="totals that would contain them",
            )
        ]


def _moment_ns(ts: object) -> int:
    return exact_ns(bytes(ts) if isinstance(ts, Raw) else str(ts).encode())
