"""One rank's device events with what their names and operators say of them.

| device | stream | start_ns | end_ns | ... | text | class | family | tensor | library |

`family` is what the ledger asks: does it compute, communicate or copy? Names are classified once
each and joined to the events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.trace import CopyDirection, DeviceKind
from fuelline.signals.traced.kernels.names import (
    CLASSES,
    COMMUNICATION,
    LIBRARIES,
    classify,
    find_library,
    is_communicating,
    uses_tensor_cores,
)
from fuelline.timeline.trace import TRACE_TABLES, complete

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fuelline.schema.run.trace import RankFacts
    from fuelline.timeline.trace import Trace

COMPUTE = "compute"
COPY = "copy"
BY_BEHAVIOUR = "by behaviour"
WAVEFRONT = 64
"""Threads that AMD's chips run in step; NVIDIA's have 32."""
_BY_OPERATOR = "by operator"
_FAMILY = pl.Enum(sorted([COMMUNICATION, COMPUTE, COPY]))
_CLASS = pl.Enum(sorted({*CLASSES, COPY}))
_LIBRARY = pl.Enum(sorted({*LIBRARIES, BY_BEHAVIOUR, _BY_OPERATOR}))
"""Numbers of one to four bytes instead of texts of sixteen: a large trace has a million events. In
the order of the alphabet, so that they sort like texts."""
_COLUMNS = tuple(
    column
    for column in TRACE_TABLES["device"]
    if column not in ("size_bytes", "registers", "shared_bytes")
)
"""Those that somebody asks for."""
_VOID = pl.Series("name", [], dtype=pl.UInt32)


@dataclass(frozen=True)
class DeviceLane:
    """A rank's device events."""

    facts: RankFacts
    events: pl.DataFrame

    @property
    def rank(self) -> int:
        """Of the job."""
        return self.facts.rank

    @property
    def devices(self) -> list[int]:
        """Those that did something that lasted."""
        lasting = self.events.group_by("device").agg(
            (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("wall_ns")
        )
        return sorted(lasting.filter(pl.col("wall_ns") > 0)["device"].to_list())

    def of(self, device: int) -> pl.DataFrame:
        """Events of one device, in order of time; `row` is their place among all of them."""
        rows = self.events.with_row_index("row")
        is_mine = rows["device"] == device
        return rows if is_mine.all() else rows.filter(is_mine)

    def with_communicating(self, texts: Collection[str]) -> DeviceLane:
        """The same, with kernels of these names known to communicate."""
        if not texts:
            return self
        text = pl.col("text").cast(pl.String)  # some may be names of other lanes
        is_one = text.is_in(list(texts)) & (pl.col("family") == COMPUTE)
        return replace(self, events=_communicate(self.events, is_one, BY_BEHAVIOUR))

    def with_graphs(self, launches: pl.DataFrame) -> DeviceLane:
        """The same, with the graph's launch as `graph` where the trace names no graph."""
        graphs = launches.filter("is_graph")["correlation"]
        if not graphs.len():
            return self
        from_graph = pl.when(pl.col("correlation").is_in(graphs.implode())).then("correlation")
        return replace(
            self, events=self.events.with_columns(pl.coalesce("graph", from_graph).alias("graph"))
        )

    def with_blocks(self, launches: pl.DataFrame) -> DeviceLane:
        """The same, with grids of AMD's chips in blocks; null where that is not known.

        Its tracer copies the grid from the launching call, and calls count differently. A trace
        whose numbers do not fit their calls is not believed: grids in threads are multiples of
        their blocks, and of many grids in blocks some are not.
        """
        if all(chip.warp_size != WAVEFRONT for chip in self.facts.chips):
            return self
        by_call = launches.select("correlation", "in_threads").filter(~launches["is_graph"])
        events = self.events.join(by_call, on="correlation", how="left", maintain_order="left")
        odd = pl.col("blocks") % pl.col("threads") != 0
        fits = events.select(
            (odd & pl.col("in_threads")).any().not_().alias("threads"),
            (odd & ~pl.col("in_threads")).any().alias("blocks"),
        )
        told = (
            pl.when(pl.col("in_threads") & fits["threads"].item())
            .then(pl.col("blocks") // pl.col("threads"))
            .when(~pl.col("in_threads") & fits["blocks"].item())
            .then("blocks")
        )
        return replace(self, events=events.with_columns(told.alias("blocks")).drop("in_threads"))


def read_lane(trace: Trace, facts: RankFacts) -> DeviceLane:
    """All device events of a rank, classified, sorted by start."""
    texts = trace.texts(facts.rank)
    events = _in_order(pl.concat([_no_events(), *trace.parts("device", facts.rank, _COLUMNS)]))
    events = (
        events.with_columns(
            pl.col("device").fill_null(0),
            pl.col("stream").fill_null(-1),
            *_describe_names(events["name"], texts),
            _tell(events["group"], texts).alias("group_text"),
        )
        .drop("name", "group")
        .with_columns(_number_of_launch(events))
        .with_columns(_family(), _class())
    )
    operators = _communicating_operators(trace, facts.rank, events)
    if operators.len():
        is_one = (pl.col("class") == "other") & pl.col("external").is_in(operators.implode())
        events = _communicate(events, is_one, _BY_OPERATOR)
    return DeviceLane(facts, events)


def _number_of_launch(events: pl.DataFrame) -> pl.Expr:
    """ROCm's tracer gives calls and what they launch the same external number, and no other."""
    return pl.col("correlation" if events["correlation"].count() else "external").alias(
        "correlation"
    )


def _in_order(events: pl.DataFrame) -> pl.DataFrame:
    """By start. Column after column, each let go of at once: a large trace is there once only."""
    order = events["start_ns"].arg_sort()
    return pl.DataFrame([events.drop_in_place(column).gather(order) for column in events.columns])


def _no_events() -> pl.DataFrame:
    return complete("device", pl.DataFrame(), _COLUMNS).clear()


def _describe_names(names: pl.Series, texts: Mapping[int, str]) -> list[pl.Series]:
    """What each event's name says; a name is looked at once, however many events have it."""
    used = names.unique()
    words = [texts.get(name, "") for name in used]
    place = _places(used).gather(names)
    columns = (
        pl.Series("text", words, pl.Enum(sorted(set(words)))),
        pl.Series("class", [classify(text) for text in words], _CLASS),
        pl.Series("library", [find_library(text) for text in words], _LIBRARY),
        pl.Series("tensor", [uses_tensor_cores(text) for text in words], pl.Boolean),
    )
    return [column.gather(place) for column in columns]


def _tell(names: pl.Series, texts: Mapping[int, str]) -> pl.Series:
    """The texts of names, null where there is none."""
    used = names.drop_nulls().unique()
    told = [texts.get(name, "") for name in used]
    words = pl.Series(values=told, dtype=pl.Enum(sorted(set(told))))
    return words.gather(_places(used).gather(names))


def _places(used: pl.Series) -> pl.Series:
    """At the place of each number, its place among those that are used."""
    numbers = pl.DataFrame({"number": used}).with_row_index("place")
    most = int(used.max() or 0)  # type: ignore[arg-type]
    every = pl.DataFrame({"number": pl.int_range(most + 1, dtype=pl.UInt32, eager=True)})
    return every.join(numbers, on="number", how="left", maintain_order="left")["place"]


def _family() -> pl.Expr:
    kind = pl.col("kind")
    is_copy = kind.is_in([int(DeviceKind.COPY), int(DeviceKind.SET)])
    is_peer = (kind == int(DeviceKind.COPY)) & (pl.col("direction") == int(CopyDirection.PEER))
    told = kind == int(DeviceKind.COMMUNICATION)
    by_name = (kind == int(DeviceKind.KERNEL)) & (pl.col("class") == COMMUNICATION)
    return (
        pl.when(told | by_name | is_peer.fill_null(value=False))
        .then(pl.lit(COMMUNICATION))
        .when(is_copy)
        .then(pl.lit(COPY))
        .otherwise(pl.lit(COMPUTE))
        .cast(_FAMILY)
        .alias("family")
    )


def _class() -> pl.Expr:
    kind = pl.col("kind")
    return (
        pl.when(kind == int(DeviceKind.COMMUNICATION))
        .then(pl.lit(COMMUNICATION))
        .when(kind.is_in([int(DeviceKind.COPY), int(DeviceKind.SET)]))
        .then(pl.lit(COPY))
        .otherwise(pl.col("class").cast(pl.String))
        .cast(_CLASS)
        .alias("class")
    )


def _communicate(events: pl.DataFrame, is_one: pl.Expr, how: str) -> pl.DataFrame:
    told = {"family": COMMUNICATION, "class": COMMUNICATION, "library": how}
    return events.with_columns(
        pl.when(is_one)
        .then(pl.lit(word))
        .otherwise(pl.col(column).cast(pl.String))
        .cast(events.schema[column])
        .alias(column)
        for column, word in told.items()
    )


def _communicating_operators(trace: Trace, rank: int, events: pl.DataFrame) -> pl.Series:
    """Operators that move data, among those of kernels whose names say nothing."""
    unknown = events["external"].filter(events["class"] == "other").drop_nulls().unique()
    names = [name for name, text in trace.texts(rank).items() if is_communicating(text)]
    if not unknown.len() or not names:
        return _VOID
    found = [
        part.filter(pl.col("name").is_in(names) & pl.col("external").is_in(unknown.implode()))[
            "external"
        ]
        for part in trace.parts("host", rank, ("name", "external"))
    ]
    return pl.concat(found).unique() if found else _VOID
