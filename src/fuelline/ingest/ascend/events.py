"""Events of a `trace_view.json`, typed, and what each of them is.

Names of processes may stand behind their events, but arguments tell: only tasks of the hardware
have a `Task Type`, only calls into CANN a `level`. Starts are text: a float is too coarse.

    {"ph": "X", "name": "aclnnMm_MatMulCommon_MatMulV2", "pid": 800, "tid": 3, "dur": 9.2,
     "ts": "1704161511422904.204", "args": {"Task Type": "AI_CORE", "connection_id": 8}}

Written by torch_npu's and MindSpore's profilers (msprof's timeline: Ascend Hardware, CANN,
Communication, Overlap Analysis).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw, Struct

from fuelline.ingest.kineto.decode import Batch
from fuelline.ingest.kineto.numbers import exact_ns
from fuelline.schema.run.trace import DeviceKind, HostKind

Number = int | float | str | None
_NO_TEXT = Raw(b"")


class TaskArgs(Struct, frozen=True, gc=False):
    """What is used of an event's arguments."""

    task_type: str | None = msgspec.field(name="Task Type", default=None)
    stream: Number = msgspec.field(name="Stream Id", default=None)
    connection: Number = msgspec.field(name="connection_id", default=None)
    level: str | None = None


_NO_ARGS = TaskArgs()


class AscendEvent(Struct, frozen=True, gc=False):
    """One event of any kind."""

    ph: str = ""
    name: str = ""
    cat: str | None = None
    pid: Number = None
    tid: Number = None
    ts: Raw = _NO_TEXT
    dur: Number = None
    id: Number = None
    args: TaskArgs = _NO_ARGS

    @property
    def start_ns(self) -> int:
        """Raises OddNumberError if it is no time."""
        return exact_ns(bytes(self.ts))

    @property
    def end_ns(self) -> int:
        """Likewise; what would end before it starts is empty."""
        return self.start_ns + max(0, exact_ns(str(self.dur or 0).encode()))


@dataclass(frozen=True)
class AscendBatch(Batch):
    """The events of a piece, as they are."""

    rows: list[AscendEvent] = field(default_factory=list)


_TYPED = msgspec.json.Decoder(list[AscendEvent])
_SINGLE = msgspec.json.Decoder(AscendEvent)
_APART = msgspec.json.Decoder(list[Raw])


class AscendDecoder:
    """Text of a piece in, events out; one of another shape is left out."""

    is_exact = True

    def decode(self, text: bytes) -> AscendBatch:
        """Raises msgspec's DecodeError if it is no JSON."""
        try:
            rows = _TYPED.decode(text)
        except msgspec.ValidationError:
            rows = [_read_single(each) for each in _APART.decode(text)]
        return AscendBatch({}, len(rows), is_exact=True, rows=rows)


def _read_single(text: Raw) -> AscendEvent:
    try:
        return _SINGLE.decode(text)
    except msgspec.ValidationError:
        return AscendEvent()


_WAITS = re.compile(r"WAIT|RECORD|PLACE_?HOLDER|PROFILER_TRACE", re.IGNORECASE)
"""Types of tasks that hold a stream without working: they wait for an event or a notification."""
_COPIES = re.compile(r"MEMCPY|SDMA|PCIE_DMA", re.IGNORECASE)
_COLLECTIVE = re.compile(r"^(hcom|lccl)_", re.IGNORECASE)
_STEP = re.compile(r"^ProfilerStep#(\d{1,18})$")


def find_device_kind(event: AscendEvent) -> DeviceKind | None:
    """What an event is on the device; None if it is none, or holds a stream without working.

    The tasks that a collective consists of are not counted beside it.
    """
    kind = event.args.task_type
    if _COLLECTIVE.match(event.name) and event.cat is None and not event.args.level:
        return DeviceKind.COMMUNICATION
    if kind is None or _WAITS.search(kind) or _WAITS.search(event.name):
        return None
    is_copy = _COPIES.search(kind) or _COPIES.search(event.name)
    return DeviceKind.COPY if is_copy else DeviceKind.KERNEL


def find_host_kind(event: AscendEvent) -> HostKind | None:
    """What an event is on the host; None if it is none of it.

    Lanes of "Overlap Analysis" repeat the others, and have neither a level nor a category.
    """
    if event.args.level:
        return HostKind.RUNTIME
    return None if event.cat is None else _CATEGORIES.get(event.cat, HostKind.OTHER)


_CATEGORIES = {
    "cpu_op": HostKind.OP,
    "python_function": HostKind.PYTHON,
    "user_annotation": HostKind.ANNOTATION,
}


def find_step(event: AscendEvent) -> int | None:
    """Number of a step that the profiler marked."""
    found = _STEP.match(event.name)
    return int(found[1]) if found else None


def find_connection(event: AscendEvent) -> int | None:
    """What joins a task with the call that launched it.

    Of a flow from host to device it is the upper half of the number.
    """
    is_flow = event.ph == "s" and event.cat == "HostToDevice"
    number: Any = event.id if is_flow else event.args.connection
    text = str(number)
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        return None
    found = int(text)
    return found >> 32 if is_flow else found
