"""Decoded events in, columns out: the device's, the host's, and operators whose work is known.

Built list by list, because a comprehension over ten thousand structs costs less than one over
rows; what can be done with whole columns waits for `numbers.settle`, when many pieces have come
together. bench/trace_import.py measures what it costs.
"""

from __future__ import annotations

import re
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import polars as pl
from msgspec.structs import astuple

from fuelline.ingest.kineto.numbers import floats, ints, moments
from fuelline.ingest.kineto.shapes import COUNTERS
from fuelline.ingest.name_book import NameBook
from fuelline.schema.trace import CopyDirection, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Struct

    from fuelline.ingest.kineto.events import AnyEvent, Number

_DEVICE_CATS: Mapping[str | None, int] = {
    "kernel": int(DeviceKind.KERNEL),
    "Kernel": int(DeviceKind.KERNEL),
    "gpu_memcpy": int(DeviceKind.COPY),
    "Memcpy": int(DeviceKind.COPY),
    "gpu_memset": int(DeviceKind.SET),
    "Memset": int(DeviceKind.SET),
}
"""Names before and after Kineto of 2022."""
_HOST_CATS: Mapping[str | None, int] = {
    "cpu_op": int(HostKind.OP),
    "Operator": int(HostKind.OP),
    "hpu_op": int(HostKind.OP),
    "cuda_runtime": int(HostKind.RUNTIME),
    "cuda_driver": int(HostKind.RUNTIME),
    "Runtime": int(HostKind.RUNTIME),
    "xpu_runtime": int(HostKind.RUNTIME),
    "xpu_driver": int(HostKind.RUNTIME),
    "mtia_runtime": int(HostKind.RUNTIME),
    "privateuse1_runtime": int(HostKind.RUNTIME),
    "privateuse1_driver": int(HostKind.RUNTIME),
    "user_annotation": int(HostKind.ANNOTATION),
    "python_function": int(HostKind.PYTHON),
    "overhead": int(HostKind.PROFILER),
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
STEP_MARK = "ProfilerStep"
_COPY_CATS = frozenset(("gpu_memcpy", "Memcpy"))
_DIGITS = re.compile(r"\d{1,18}")
_MOST_DIGITS = 19


class Names(NameBook):
    """Texts to numbers, and those of them that mean something more."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[int, int] = {}
        """Names of the profiler's own steps to their numbers."""
        self.counted: set[int] = set()
        """Names of operators whose work can be counted."""

    def number(self, text: str) -> int:
        """The number of a text that is new or long."""
        found = super().number(text)
        mark, _, step = text.partition("#")
        if mark == STEP_MARK and step.isdecimal() and len(step) < _MOST_DIGITS:
            self.steps[found] = int(step)
        if text in COUNTERS:
            self.counted.add(found)
        return found

    def find(self, names: Sequence[str]) -> list[int]:
        """Numbers of these names."""
        known = self.numbers
        try:
            return [known[name] for name in names]
        except KeyError:
            return [self.number(name) for name in names]


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


def device_frame(events: Sequence[AnyEvent], book: Book) -> pl.DataFrame:
    """Columns of the `device` table, times not settled yet."""
    event = _fields(events)
    args = _fields(event["args"])
    names = book.names
    return pl.DataFrame(
        {
            **moments(event["ts"], event["dur"]),
            "device": _first(args["device"], event["pid"]),
            "stream": _first(args["stream"], event["tid"]),
            "name": pl.Series(values=names.find(event["name"]), dtype=pl.UInt32),
            "kind": pl.Series(values=[_DEVICE_CATS[cat] for cat in event["cat"]], dtype=pl.UInt8),
            "correlation": ints(args["correlation"]),
            "external": _first(args["external"], args["external_old"]),
            "size_bytes": ints(_sizes(args)),
            "direction": pl.Series(
                values=[
                    _direction(name) if cat in _COPY_CATS else None
                    for name, cat in zip(event["name"], event["cat"], strict=True)
                ],
                dtype=pl.UInt8,
            ),
            "blocks": ints(_products(args["grid"])),
            "threads": ints(_products(args["block"])),
            "registers": ints(args["registers"]),
            "shared_bytes": ints(args["shared"]),
            "occupancy": floats(args["occupancy"]),
            "graph": ints(args["graph"]),
            "group": pl.Series(
                values=[
                    None if each is None else names.number(str(each)) for each in args["group"]
                ],
                dtype=pl.UInt32,
            ),
            "sequence": ints(args["sequence"]),
        }
    )


def host_frame(events: Sequence[AnyEvent], book: Book) -> tuple[pl.DataFrame, list[AnyEvent]]:
    """Columns of the `host` table, times not settled yet; and the events whose work may count."""
    event = _fields(events)
    correlation, outside = zip(*map(_LINKS, event["args"]), strict=True)
    numbers = book.names.find(event["name"])
    counted = book.names.counted
    frame = pl.DataFrame(
        {
            **moments(event["ts"], event["dur"]),
            "thread": _threads(event["tid"], book.threads),
            "name": pl.Series(values=numbers, dtype=pl.UInt32),
            "kind": pl.Series(values=_kinds(event["cat"]), dtype=pl.UInt8),
            "correlation": ints(correlation),
            "external": external(events) if outside[0] is None else ints(outside),
        }
    )
    return frame, [events[place] for place, name in enumerate(numbers) if name in counted]


_LINKS = attrgetter("correlation", "external")


def _kinds(categories: Sequence[str | None]) -> list[int]:
    known = _HOST_CATS
    try:
        return [known[category] for category in categories]
    except KeyError:
        return [known.get(category, int(HostKind.OTHER)) for category in categories]


def _fields(structs: Sequence[Struct]) -> dict[str, tuple[Any, ...]]:
    """Structs of one kind, field by field."""
    columns = zip(*map(astuple, structs), strict=True)
    return dict(zip(structs[0].__struct_fields__, columns, strict=True))


def _first(values: Sequence[Number], others: Sequence[Number]) -> pl.Series:
    """Whole numbers, the others where there is no value."""
    found = ints(values)
    if not found.null_count():
        return found
    return ints([b if a is None else a for a, b in zip(values, others, strict=True)])


def external(events: Sequence[AnyEvent]) -> pl.Series:
    """The operator's number under its new or its old key."""
    args = [event.args for event in events]
    return _first([each.external for each in args], [each.external_old for each in args])


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


def _sizes(args: Mapping[str, Sequence[Any]]) -> Sequence[Number]:
    """Bytes of copies, and of what collectives move."""
    if not any(args["elements"]):
        return args["size"]
    columns = zip(args["size"], args["elements"], args["dtype"], strict=True)
    return [
        number * _DTYPE_BYTES[dtype] if isinstance(number, int) and dtype in _DTYPE_BYTES else size
        for size, number, dtype in columns
    ]


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
