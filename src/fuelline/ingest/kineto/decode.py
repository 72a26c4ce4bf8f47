"""Text of a piece in, events by what must be known of them out.

Two readers of the same text. The first knows the categories by heart: flows and marks, half of a
trace, cost it next to nothing, and operators, another third, no arguments. It gives up a piece with
anything else in it, which the second then reads: any category, any order of keys, and what has a
field of a wrong type as plain objects. A file that the first gave up often is left to the second.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import or_
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from fuelline.ingest.kineto.events import (
    NO_ARGS,
    Args,
    Event,
    ExactEvent,
    Links,
    Number,
    bend,
)
from fuelline.schema.trace import DeviceKind, HostKind

_UNLINKED = {
    "cpu_op": HostKind.OP,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
    "overhead": HostKind.PROFILER,
}
_LINKED = {"cuda_runtime": HostKind.RUNTIME, "cuda_driver": HostKind.RUNTIME}
_DEVICE = {
    "kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.COPY,
    "gpu_memset": DeviceKind.SET,
}
_IGNORED = (
    *("ac2g", "fwdbwd", "async_cpu_to_gpu", "async_gpu", "cpu_instant_event", "Trace"),
    *("gpu_user_annotation", "cuda_sync", "cuda_profiler_range", "collective_comm"),
)
"""Flows, marks, and complete events that repeat what others say on a lane of their own."""
_OLD_DEVICE = {"Kernel": DeviceKind.KERNEL, "Memcpy": DeviceKind.COPY, "Memset": DeviceKind.SET}
_OLD_HOST = {"Operator": HostKind.OP, "Runtime": HostKind.RUNTIME}
"""Names before Kineto of 2022."""
_OTHER_RUNTIMES = ("xpu_runtime", "xpu_driver", "mtia_runtime", "privateuse1_runtime")
_DEVICE_KINDS = {name: int(kind) for name, kind in (_DEVICE | _OLD_DEVICE).items()}
_HOST_KINDS = {name: int(kind) for name, kind in (_UNLINKED | _LINKED | _OLD_HOST).items()}
_HOST_KINDS |= dict.fromkeys(_OTHER_RUNTIMES, int(HostKind.RUNTIME))
_OTHER = int(HostKind.OTHER)
_FLOAT_TS_US = 2**43
"""From here on a float of microseconds is coarser than a nanosecond."""
_PATIENCE = 4
"""The first reader may give up every fourth piece, and four at the start; then it is not asked."""


@dataclass(frozen=True)
class Sort:
    """What events have in common that are read the same way."""

    table: Literal["device", "host"]
    kind: int
    """DeviceKind or HostKind."""
    has_args: bool = True
    """False where the arguments are kept as text: of host events nobody has asked for yet."""


@dataclass(frozen=True)
class Batch:
    """The events of a piece."""

    complete: dict[Sort, list[Any]]
    """Apart by what must be known of them."""
    events: int
    """Of all phases."""
    halves: list[Any] = field(default_factory=list)
    """Beginnings and ends that are events of their own, in the order of the file."""


class _Fast:
    """The first reader; `exact` keeps starts as text."""

    def __init__(self, *, exact: bool) -> None:
        start: Any = ("ts", Raw, Raw(b"")) if exact else ("ts", Number, None)
        whose = [("pid", Number, None), ("tid", Number, None)]
        device = {
            _struct(cat, [*whose, start], Args, NO_ARGS): Sort("device", int(kind))
            for cat, kind in _DEVICE.items()
        }
        linked = {
            _struct(cat, [whose[1], start], Links, Links()): Sort("host", int(kind))
            for cat, kind in _LINKED.items()
        }
        unlinked = {
            _struct(cat, [whose[1], start], Raw, Raw(b"")): Sort("host", int(kind), has_args=False)
            for cat, kind in _UNLINKED.items()
        }
        empty = [
            msgspec.defstruct(f"No_{cat}", [], tag_field="cat", tag=cat, frozen=True, gc=False)
            for cat in _IGNORED
        ]
        self._sorts: dict[type, Sort] = {**device, **linked, **unlinked}
        self._ignored = dict.fromkeys(empty, deque[Any](maxlen=0).append)
        kinds: Any = reduce(or_, (*self._sorts, *empty))
        self._decoder = msgspec.json.Decoder(list[kinds])

    def decode(self, text: bytes) -> Batch:
        events = self._decoder.decode(text)
        found: dict[Sort, list[Any]] = {sort: [] for sort in self._sorts.values()}
        put = {kind: found[sort].append for kind, sort in self._sorts.items()} | self._ignored
        for event in events:
            put[event.__class__](event)
        return Batch({sort: same for sort, same in found.items() if same}, len(events))


def _struct(cat: str, where: list[Any], args: Any, no_args: Any) -> type[Struct]:
    """Fields in the order in which they are written; a phase other than X is not known here."""
    fields: list[Any] = [
        ("ph", Literal["X"]),
        ("name", str, ""),
        *where,
        ("dur", Number, None),
        ("args", args, no_args),
    ]
    return msgspec.defstruct(
        f"Event_{cat}", fields, tag_field="cat", tag=cat, frozen=True, gc=False
    )


@lru_cache(2)
def _find_fast(exact: bool) -> _Fast:  # noqa: FBT001 - a key
    return _Fast(exact=exact)


_LOOSE: dict[bool, msgspec.json.Decoder[Any]] = {
    False: msgspec.json.Decoder(list[Event]),
    True: msgspec.json.Decoder(list[ExactEvent]),
}
_PLAIN = msgspec.json.Decoder(list[dict[str, Any]])


class Decoder:
    """Reads pieces of one file; what it has learnt from one piece it keeps for the next."""

    def __init__(self) -> None:
        self._pieces = 0
        self._given_up = 0
        self._is_exact = False

    def decode(self, text: bytes) -> Batch:
        """The events of an array; msgspec.DecodeError if it is none."""
        batch = self._read(text)
        first = next(iter((*batch.complete.values(), batch.halves)), [])
        if not self._is_exact and first and _is_coarse(first[0].ts):
            self._is_exact = True
            batch = self._read(text)
        return batch

    def _read(self, text: bytes) -> Batch:
        self._pieces += 1
        if self._given_up * _PATIENCE <= self._pieces + _PATIENCE**2:
            try:
                return _find_fast(self._is_exact).decode(text)
            except msgspec.ValidationError:
                self._given_up += 1
        try:
            events: list[Any] = _LOOSE[self._is_exact].decode(text)
        except msgspec.ValidationError:
            events = [bend(each) for each in _PLAIN.decode(text)]
        return _sort_out(events)


def _is_coarse(ts: object) -> bool:
    """Whether a time is a fraction that a float cannot hold."""
    return isinstance(ts, float) and abs(ts) >= _FLOAT_TS_US


def _sort_out(events: list[Any]) -> Batch:
    found: dict[Sort, list[Any]] = {}
    known = [event for event in events if event.cat not in _IGNORED]
    for event in known:
        if event.ph == "X":
            found.setdefault(find_sort(event.cat), []).append(event)
    return Batch(found, len(events), [event for event in known if event.ph in ("B", "E")])


@lru_cache(1024)
def find_sort(cat: str | None) -> Sort:
    """Of an event whose arguments were read, by its category."""
    if cat in _DEVICE_KINDS:
        return Sort("device", _DEVICE_KINDS[cat])
    return Sort("host", _HOST_KINDS.get(cat or "", _OTHER))
