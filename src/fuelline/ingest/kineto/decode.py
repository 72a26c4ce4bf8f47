"""Text of a piece in, events by what must be known of them out.

Two readers of the same text. The first knows the categories by heart: flows and marks, half of a
trace, cost it next to nothing, and operators, another third, no arguments. It gives up a piece with
anything else in it, which the second then reads: any category, any order of keys, and what has a
field of a wrong type as plain objects. A file that the first gave up often is left to the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
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


@dataclass
class Batch:
    """The complete events of a piece, apart by what must be known of them."""

    device: list[Any] = field(default_factory=list)
    device_kinds: list[int] = field(default_factory=list)
    linked: list[Any] = field(default_factory=list)
    """Host events whose correlation and operator are wanted."""
    linked_kinds: list[int] = field(default_factory=list)
    unlinked: list[Any] = field(default_factory=list)
    """Host events whose arguments were not read."""
    unlinked_kinds: list[int] = field(default_factory=list)

    def first(self) -> Any:
        """Some event; None if there is none."""
        return next(iter((*self.device[:1], *self.linked[:1], *self.unlinked[:1])), None)


class _Fast:
    """The first reader; `exact` keeps starts as text."""

    def __init__(self, *, exact: bool) -> None:
        start: Any = ("ts", Raw, Raw(b"")) if exact else ("ts", Number, None)
        self._device = {_struct(cat, start, Args, NO_ARGS): int(k) for cat, k in _DEVICE.items()}
        self._linked = {_struct(cat, start, Links, Links()): int(k) for cat, k in _LINKED.items()}
        self._unlinked = {
            _struct(cat, start, Raw, Raw(b"")): int(k) for cat, k in _UNLINKED.items()
        }
        empty = (
            msgspec.defstruct(f"No_{cat}", [], tag_field="cat", tag=cat, frozen=True, gc=False)
            for cat in _IGNORED
        )
        self._ignored = frozenset(empty)
        kinds: Any = reduce(or_, (*self._device, *self._linked, *self._unlinked, *self._ignored))
        self._decoder = msgspec.json.Decoder(list[kinds])

    def decode(self, text: bytes) -> tuple[Batch, int]:
        events = self._decoder.decode(text)
        by_kind: dict[type, list[Any]] = {}
        ignored = self._ignored
        for event in events:
            kind = event.__class__
            if kind in ignored:
                continue
            if kind in by_kind:
                by_kind[kind].append(event)
            else:
                by_kind[kind] = [event]
        batch = Batch()
        for kind, same in by_kind.items():
            if kind in self._device:
                batch.device += same
                batch.device_kinds += [self._device[kind]] * len(same)
            elif kind in self._linked:
                batch.linked += same
                batch.linked_kinds += [self._linked[kind]] * len(same)
            else:
                batch.unlinked += same
                batch.unlinked_kinds += [self._unlinked[kind]] * len(same)
        return batch, len(events)


def _struct(cat: str, start: Any, args: Any, no_args: Any) -> type[Struct]:
    """Fields in the order in which they are written; a phase other than X is not known here."""
    fields: list[Any] = [
        ("ph", Literal["X"]),
        ("name", str, ""),
        ("pid", Number, None),
        ("tid", Number, None),
        start,
        ("dur", Number, None),
        ("args", args, no_args),
    ]
    return msgspec.defstruct(
        f"Event_{cat}", fields, tag_field="cat", tag=cat, frozen=True, gc=False
    )


_FAST = {exact: _Fast(exact=exact) for exact in (False, True)}
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
        self.events = 0
        """Of all phases, so far."""

    def decode(self, text: bytes) -> Batch:
        """The events of an array; msgspec.DecodeError if it is none."""
        batch, events = self._read(text)
        first = batch.first()
        if not self._is_exact and first is not None and _is_coarse(first.ts):
            self._is_exact = True
            batch, events = self._read(text)
        self.events += events
        return batch

    def _read(self, text: bytes) -> tuple[Batch, int]:
        self._pieces += 1
        if self._given_up * _PATIENCE <= self._pieces + _PATIENCE**2:
            try:
                return _FAST[self._is_exact].decode(text)
            except msgspec.ValidationError:
                self._given_up += 1
        try:
            events: list[Any] = _LOOSE[self._is_exact].decode(text)
        except msgspec.ValidationError:
            events = [bend(each) for each in _PLAIN.decode(text)]
        return _sort_out(events), len(events)


def _is_coarse(ts: object) -> bool:
    """Whether a time is a fraction that a float cannot hold."""
    return isinstance(ts, float) and abs(ts) >= _FLOAT_TS_US


def _sort_out(events: list[Any]) -> Batch:
    complete = [event for event in events if event.ph == "X"]
    device = [event for event in complete if event.cat in _DEVICE_KINDS]
    host = [e for e in complete if e.cat not in _DEVICE_KINDS and e.cat not in _IGNORED]
    return Batch(
        device=device,
        device_kinds=[_DEVICE_KINDS[event.cat] for event in device],
        linked=host,
        linked_kinds=[_HOST_KINDS.get(event.cat, _OTHER) for event in host],
    )
