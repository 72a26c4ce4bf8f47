"""The events of a recorded run as one table a kind, with named columns.

In the recording all kinds share five integer columns, and -1 stands for what is not known; here
each has its name, null is what is not known, and flags are columns that are true or false.

    kind flags start_ns a  b   c      loader_id samples size_bytes ... is_training is_end
    NEXT GRAD  100      1  32  -1  -> 1         32      null           true        false
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.wire import Collective, Flag, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALWAYS = ("pid", "tid", "start_ns", "dur_ns")
_LETTERS = ("a", "b", "c", "d", "e")
_EXCHANGE = ("operation", "size_bytes", "group", "number", "ranks")

_FIELDS: Mapping[Kind, tuple[str, ...]] = {
    # Names of a..e, in this order; empty: not kept.
    Kind.BACKWARD: ("graph_nodes", "cpu_ns"),
    Kind.COLLECTIVE: _EXCHANGE,
    Kind.COLLECTIVE_WAIT: _EXCHANGE,
    Kind.COPY: ("size_bytes", "device"),
    Kind.DEVICE_STEP: ("device", "busy_ns", "idle_before_ns"),
    Kind.FETCH: ("worker", "samples", "cpu_ns", "run_queue_ns", "collate_ns"),
    Kind.FETCH_IO: ("rchar_bytes", "disk_read_bytes", "read_calls", "major_faults", "system_ns"),
    Kind.FLOPS: ("flops",),
    Kind.GC: ("generation", "collected"),
    Kind.HANDOFF: ("pickled_bytes", "cpu_ns", "worker", "size_bytes"),
    Kind.ITER: ("loader_id",),
    Kind.NEXT: ("loader_id", "samples", "size_bytes", "cpu_ns", "position"),
    Kind.OPTIMIZER: ("optimizer_id",),
    Kind.PIN: ("size_bytes",),
    Kind.SAVE: ("size_bytes",),
    Kind.SYNC: ("device",),
    Kind.WORKER: ("loader_id", "worker", "worker_pid"),
}
_FLAGS: Mapping[Kind, Mapping[str, Flag]] = {
    Kind.COLLECTIVE: {"is_async": Flag.ASYNC},
    Kind.COPY: {"is_non_blocking": Flag.NON_BLOCKING, "is_pinned": Flag.PINNED},
    Kind.FETCH: {"is_end": Flag.END},
    Kind.NEXT: {"is_training": Flag.GRAD, "is_end": Flag.END},
    Kind.SYNC: {"is_implicit": Flag.IMPLICIT},
}
_NAMES = {
    Kind.NEXT: "waits",
    Kind.ITER: "iterators",
    Kind.FETCH: "fetches",
    Kind.FETCH_IO: "fetch_reads",
    Kind.WORKER: "workers",
    Kind.HANDOFF: "handoffs",
    Kind.PIN: "pins",
    Kind.COPY: "copies",
    Kind.BACKWARD: "backwards",
    Kind.OPTIMIZER: "optimizer_steps",
    Kind.SAVE: "saves",
    Kind.SYNC: "syncs",
    Kind.GC: "collections",
    Kind.COLLECTIVE: "collectives",
    Kind.COLLECTIVE_WAIT: "collective_waits",
    Kind.FLOPS: "flops",
    Kind.DEVICE_STEP: "device_steps",
}
EVENT_TABLES: Mapping[str, Kind] = {name: kind for kind, name in _NAMES.items()}
"""Table to the kind of event that it holds."""


def name_events(events: pl.DataFrame, table: str) -> pl.DataFrame:
    """The events of one kind out of all, with their own columns."""
    kind = EVENT_TABLES[table]
    found = events.filter(pl.col("kind") == int(kind))
    flags = {**_FLAGS.get(kind, {}), "is_error": Flag.ERROR}
    return found.select(
        *_ALWAYS,
        *(_field(letter, name) for letter, name in zip(_LETTERS, _FIELDS[kind], strict=False)),
        *((pl.col("flags") & int(flag) != 0).alias(name) for name, flag in flags.items()),
    ).sort("start_ns")


def _field(letter: str, name: str) -> pl.Expr:
    value = pl.when(pl.col(letter) >= 0).then(pl.col(letter)).alias(name)
    if name != "operation":
        return value
    words = {int(each): each.name.lower() for each in Collective}
    return pl.col(letter).replace_strict(words, default=None, return_dtype=pl.String()).alias(name)
