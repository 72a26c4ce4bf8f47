"""Decoded events in, columns out: the device's, the host's, and operators whose work is known.

Built list by list, because a comprehension over ten thousand structs costs less than one over
rows. Times become whole nanoseconds here; an event that ends before it starts ends when it starts,
and is counted. Prices are measured by bench/trace_import.py.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.kineto.numbers import (
    MOST_TS_US,
    OddNumberError,
    floats,
    ints,
    small,
    starts,
)
from fuelline.schema.trace import CopyDirection, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.ingest.kineto.events import AnyEvent, Args, Number

_DEVICE_CATS = {
    "kernel": DeviceKind.KERNEL,
    "Kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.COPY,
    "Memcpy": DeviceKind.COPY,
    "gpu_memset": DeviceKind.SET,
    "Memset": DeviceKind.SET,
}
"""Names before and after Kineto of 2022."""
_HOST_CATS = {
    "cpu_op": HostKind.OP,
    "Operator": HostKind.OP,
    "hpu_op": HostKind.OP,
    "cuda_runtime": HostKind.RUNTIME,
    "cuda_driver": HostKind.RUNTIME,
    "Runtime": HostKind.RUNTIME,
    "xpu_runtime": HostKind.RUNTIME,
    "xpu_driver": HostKind.RUNTIME,
    "mtia_runtime": HostKind.RUNTIME,
    "privateuse1_runtime": HostKind.RUNTIME,
    "privateuse1_driver": HostKind.RUNTIME,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
    "overhead": HostKind.PROFILER,
}
_NO_SPANS = frozenset(
    ("Trace", "gpu_user_annotation", "cuda_sync", "cuda_profiler_range", "collective_comm")
)
"""Complete events that repeat what others say, on a lane of their own."""
_DIRECTIONS = (
    ("HtoD", CopyDirection.HOST_TO_DEVICE),
    ("DtoH", CopyDirection.DEVICE_TO_HOST),
    ("DtoD", CopyDirection.DEVICE_TO_DEVICE),
    ("PtoP", CopyDirection.PEER),
)
_DTYPE_BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Double": 8, "Int": 4, "Long": 8}
_DTYPE_BYTES |= {"Byte": 1, "Char": 1, "Bool": 1}
_MOST_NAME = 4096
_DIGITS = re.compile(r"\d+")


class Names:
    """Texts to numbers, in the order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.steps: dict[int, int] = {}
        """Names of the profiler's own steps to their numbers."""

    def number(self, text: str) -> int:
        """The number of a text that is new or long."""
        kept = text if len(text) <= _MOST_NAME else _shorten(text)
        found = self.numbers.setdefault(kept, len(self.numbers))
        if kept.startswith("ProfilerStep#") and kept[13:].isdecimal():
            self.steps[found] = int(kept[13:])
        return found

    def column(self, events: Sequence[AnyEvent]) -> pl.Series:
        """Numbers of the names of these events."""
        known = self.numbers
        return pl.Series(
            values=[
                known[event.name] if event.name in known else self.number(event.name)
                for event in events
            ],
            dtype=pl.UInt32,
        )

    def frame(self) -> pl.DataFrame:
        """All of them."""
        return pl.DataFrame(
            {
                "name": pl.Series(values=list(self.numbers.values()), dtype=pl.UInt32),
                "text": pl.Series(values=list(self.numbers), dtype=pl.String),
            }
        )


def _shorten(text: str) -> str:
    return f"{text[:_MOST_NAME]}... ({len(text)} characters, {zlib.crc32(text.encode()):08x})"


def pick_device(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Those that ran on the device."""
    return [event for event in events if event.cat in _DEVICE_CATS]


def pick_host(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Those of the host, of categories that we do not know, too."""
    return [e for e in events if e.cat not in _DEVICE_CATS and e.cat not in _NO_SPANS]


class Book:
    """What is carried from one piece to the next."""

    def __init__(self) -> None:
        self.names = Names()
        self.threads: dict[str, int] = {}
        """Threads that have a name instead of a number."""
        self.negative = 0
        """Events that ended before they started."""

    def spans(self, events: Sequence[AnyEvent]) -> tuple[pl.Series, pl.Series]:
        """Start and end in nanoseconds; an end before the start is moved to it."""
        start = starts(events)
        took = (floats([event.dur for event in events]).fill_null(0.0) * 1000).round()
        if took.len() and not (took.abs().max() or 0.0) < MOST_TS_US * 1000:  # type: ignore[operator]
            raise OddNumberError("a duration is absurd")
        self.negative += int((took < 0).sum())
        return start, start + took.clip(0).cast(pl.Int64)


def device_frame(events: Sequence[AnyEvent], book: Book) -> pl.DataFrame:
    """Columns of the `device` table."""
    args = [event.args for event in events]
    start, end = book.spans(events)
    names = book.names
    groups = [None if a.group is None else names.number(str(a.group)) for a in args]
    devices = [e.pid if a.device is None else a.device for a, e in zip(args, events, strict=True)]
    streams = [e.tid if a.stream is None else a.stream for a, e in zip(args, events, strict=True)]
    return pl.DataFrame(
        {
            "device": small(devices),
            "stream": ints(streams),
            "start_ns": start,
            "end_ns": end,
            "name": names.column(events),
            "kind": pl.Series(values=[_DEVICE_CATS[e.cat] for e in events], dtype=pl.UInt8),
            "correlation": ints([a.correlation for a in args]),
            "external": external(args),
            "size_bytes": ints([_size_of(a) for a in args]),
            "direction": pl.Series(values=[_direction(e) for e in events], dtype=pl.UInt8),
            "blocks": ints([_product(a.grid) for a in args]),
            "threads": small([_product(a.block) for a in args]),
            "registers": small([a.registers for a in args]),
            "shared_bytes": small([a.shared for a in args]),
            "occupancy": (floats([a.occupancy for a in args]) / 100).cast(pl.Float32),
            "graph": ints([a.graph for a in args]),
            "group": pl.Series(values=groups, dtype=pl.UInt32),
            "sequence": ints([a.sequence for a in args]),
        }
    )


def host_frame(events: Sequence[AnyEvent], book: Book) -> pl.DataFrame:
    """Columns of the `host` table."""
    start, end = book.spans(events)
    args = [event.args for event in events]
    kind = _HOST_CATS.get
    other = HostKind.OTHER
    return pl.DataFrame(
        {
            "thread": _threads([event.tid for event in events], book.threads),
            "start_ns": start,
            "end_ns": end,
            "name": book.names.column(events),
            "kind": pl.Series(values=[kind(e.cat, other) for e in events], dtype=pl.UInt8),
            "correlation": ints([a.correlation for a in args]),
            "external": external(args),
        }
    )


def external(args: Sequence[Args]) -> pl.Series:
    """The operator's number under its new or its old key."""
    return ints([a.external_old if a.external is None else a.external for a in args])


def _threads(values: list[Number], threads: dict[str, int]) -> pl.Series:
    """Thread ids; names of threads get negative numbers of their own."""
    if all(type(value) is int for value in values):
        return ints(values)
    return ints([v if type(v) is int else _thread(str(v), threads) for v in values])


def _thread(text: str, threads: dict[str, int]) -> int:
    return int(text) if text.isdecimal() else threads.setdefault(text, -1 - len(threads))


def _size_of(args: Args) -> Number:
    """Bytes of a copy, or of what a collective moves."""
    if args.size is None and isinstance(args.elements, int):
        return args.elements * _DTYPE_BYTES.get(args.dtype or "", 1) if args.dtype else None
    return args.size


def _direction(event: AnyEvent) -> int | None:
    if _DEVICE_CATS[event.cat] is not DeviceKind.COPY:
        return None
    return next((kind for word, kind in _DIRECTIONS if word in event.name), CopyDirection.UNKNOWN)


def _product(sizes: list[int] | str | None) -> int | None:
    if sizes is None:
        return None
    numbers = [int(word) for word in _DIGITS.findall(sizes)] if isinstance(sizes, str) else sizes
    product = 1
    for number in numbers:
        product *= number
    return product if numbers else None
