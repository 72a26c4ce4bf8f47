"""The tables of a Timeline and their columns. Times are integer nanoseconds on the run's clock.

A table that nothing was recorded for is empty, never absent, so that readers need no special case.
"""

from collections.abc import Mapping

import polars as pl

TABLES: Mapping[str, Mapping[str, pl.DataType]] = {
    "events": {
        "pid": pl.Int32(),
        "tid": pl.Int32(),
        "kind": pl.UInt8(),
        "flags": pl.UInt16(),
        "start_ns": pl.Int64(),
        "dur_ns": pl.Int64(),
        "a": pl.Int64(),
        "b": pl.Int64(),
        "c": pl.Int64(),
        "d": pl.Int64(),
        "e": pl.Int64(),
    },
    "states": {
        "window_ns": pl.Int64(),
        "pid": pl.Int32(),
        "tid": pl.Int32(),
        "phase": pl.Int8(),
        "state": pl.String(),
        "syscall": pl.String(),
        "place": pl.Int32(),
        "count": pl.Int32(),
    },
    "places": {
        "id": pl.Int32(),
        "path": pl.String(),
        "mount": pl.String(),
        "fstype": pl.String(),
        "device": pl.String(),
    },
    "clocks": {
        "at_ns": pl.Int64(),
        "pid": pl.Int32(),
        "tid": pl.Int32(),
        "oncpu_ns": pl.Int64(),
        "runq_ns": pl.Int64(),
    },
    "processes": {
        "at_ns": pl.Int64(),
        "pid": pl.Int32(),
        "cpu_ns": pl.Int64(),
        "rchar_bytes": pl.Int64(),
        "disk_read_bytes": pl.Int64(),
        "read_calls": pl.Int64(),
        "wchar_bytes": pl.Int64(),
        "disk_write_bytes": pl.Int64(),
        "major_faults": pl.Int64(),
        "rss_bytes": pl.Int64(),
    },
    "seen": {
        "at_ns": pl.Int64(),
        "pid": pl.Int32(),
        "ppid": pl.Int32(),
        "name": pl.String(),
        "started_ns": pl.Int64(),
    },
    "host": {"at_ns": pl.Int64(), "name": pl.String(), "value": pl.Float64()},
    "stacks": {
        "from_ns": pl.Int64(),
        "until_ns": pl.Int64(),
        "pid": pl.Int32(),
        "tid": pl.Int32(),
        "frames": pl.List(pl.String()),
        "count": pl.Int32(),
    },
    "others": {
        "at_ns": pl.Int64(),
        "interval_ns": pl.Int64(),
        "pid": pl.Int32(),
        "name": pl.String(),
        "cpu_ns": pl.Int64(),
        "disk_read_bytes": pl.Int64(),
        "disk_write_bytes": pl.Int64(),
        "calls": pl.Int64(),
        "place": pl.Int32(),
        "blocked": pl.Int32(),
    },
    "devices": {
        "at_ns": pl.Int64(),
        "device": pl.String(),
        "name": pl.String(),
        "value": pl.Float64(),
    },
    "device_processes": {
        "at_ns": pl.Int64(),
        "device": pl.String(),
        "pid": pl.Int32(),
        "memory_bytes": pl.Int64(),
        "of_job": pl.Boolean(),
    },
}


MOST_NS = 1 << 62
"""Beyond 146 years from zero a time is damage, and differences of such times would overflow."""


def is_possible(frame: pl.DataFrame) -> pl.Expr:
    """Whether a row can have been recorded: nothing is missing, and times can be subtracted."""
    checks = [pl.col(name).is_not_null() for name in frame.columns]
    for name, kind in frame.schema.items():
        if name.endswith("_ns") and kind.is_integer():
            checks.append(pl.col(name).is_between(-MOST_NS, MOST_NS))
        elif kind.is_float():
            checks.append(pl.col(name).is_finite())
        elif kind == pl.List(pl.String):
            checks.append(pl.col(name).list.eval(pl.element().is_not_null()).list.all())
        if name in ("dur_ns", "count", "pid", "tid"):
            checks.append(pl.col(name) >= 0)
    return pl.all_horizontal(checks)


def empty_table(name: str) -> pl.DataFrame:
    """A table with its columns and no row."""
    return pl.DataFrame(schema=dict(TABLES[name]))
