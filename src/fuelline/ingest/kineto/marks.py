"""Events that are more than a row of the host's: the profiler's steps, and operators with work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.ingest.kineto.events import decode_op_args
from fuelline.ingest.kineto.host import external
from fuelline.ingest.kineto.numbers import exact_starts, floats, ints, moments
from fuelline.ingest.kineto.shapes import NO_WORK, count_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from fuelline.ingest.kineto.book import Book
    from fuelline.ingest.kineto.events import Args, Number
    from fuelline.ingest.kineto.shapes import Work


class Marks:
    """Steps and operators of a file that wait to become rows of tables of their own."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._clear()

    def _clear(self) -> None:
        self._starts: list[Any] = []
        self._lengths: list[Number] = []
        self._names: list[int] = []
        self._works: list[tuple[Number, Work]] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, events: Sequence[Any], *, exact: bool) -> None:
        """Take over events whose names are watched: operators without work are none of ours."""
        names = self._book.names
        marked = [
            (event, number)
            for event, number in zip(events, names.find([e.name for e in events]), strict=True)
            if number in names.steps or number in names.counted
        ]
        starts = [event.ts for event, _ in marked]
        self._starts += exact_starts(starts) if exact else starts
        self._lengths += [event.dur for event, _ in marked]
        self._names += [number for _, number in marked]
        self._works += [self._work(number, event.args) for event, number in marked]

    def _work(self, name: int, args: Raw | Args) -> tuple[Number, Work]:
        """The operator's own number, and what it does."""
        if name not in self._book.names.counted:
            return None, NO_WORK
        known = decode_op_args(args)
        return external([known])[0], count_work(self._book.names.texts[name], known)

    def take(self, *, exact: bool) -> pl.DataFrame:
        """What has come together; nothing is left afterwards."""
        found = moments(self._starts, self._lengths, exact=exact)
        names = pl.Series(values=self._names, dtype=pl.Int64)
        frame = pl.DataFrame({**found.columns, "name": names, **_columns(self._works)})
        self._clear()
        return frame

    def complete(self, rows: pl.DataFrame, args: Sequence[Raw]) -> pl.DataFrame:
        """The same of rows that have their times and names already."""
        works = [self._work(name, each) for name, each in zip(rows["name"], args, strict=True)]
        return rows.select("start_ns", "end_ns", "name").with_columns(**_columns(works))

    def split(self, frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """By table, in the order of time."""
        names = self._book.names
        step = [names.steps.get(name) for name in frame["name"]]
        is_op = [name in names.counted for name in frame["name"]]
        steps = frame.with_columns(pl.Series("step", step, dtype=pl.Int64)).drop_nulls("step")
        ops = frame.filter(pl.Series(is_op, dtype=pl.Boolean))
        by_work = ("start_ns", "external", "flops", "least_bytes", "dtype")
        return {"steps": steps.sort("start_ns", "step", "end_ns"), "ops": ops.sort(by_work)}


def _columns(works: Sequence[tuple[Number, Work]]) -> dict[str, pl.Series]:
    return {
        "external": ints([own for own, _ in works]),
        "flops": floats([work[0] for _, work in works]),
        "least_bytes": floats([work[1] for _, work in works]),
        "dtype": pl.Series(values=[work[2] for _, work in works], dtype=pl.String),
    }
