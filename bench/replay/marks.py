"""The device times that the hooks' events would have had, from when everything was launched.

An event that is recorded on a stream at a moment of the host is passed when all is done that was
launched there before, and on an idle stream a launch's latency later.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from fuelline.schema.wire import Flag, Kind, MarkPlace

if TYPE_CHECKING:
    from bench.replay.events import Call, Job

__all__ = ["Mark", "put_beside", "put_marks", "window_of"]

_STANDS_NS = 20_000
"""A mark that was put so shortly before stands for the one before a stall."""
_LATENCY_NS = 5_000
"""From recording an event on an idle stream until the device passes it: a few microseconds."""

_TELLING = (MarkPlace.STEP_END, MarkPlace.COPY_END)
"""From the first of these on the hooks know the device: that of the weights, or of a copy."""
_LOOKING = (MarkPlace.WAIT_END, MarkPlace.BACKWARD_END, MarkPlace.STEP_END)
"""At these the hooks look which marks the device has passed; and after the host has waited."""
_AROUND: dict[Kind, tuple[MarkPlace | None, MarkPlace | None]] = {
    Kind.WAIT: (MarkPlace.WAIT_BEGIN, MarkPlace.WAIT_END),
    Kind.COPY: (MarkPlace.COPY_BEGIN, MarkPlace.COPY_END),
    Kind.BACKWARD: (MarkPlace.BACKWARD_BEGIN, MarkPlace.BACKWARD_END),
    Kind.SYNC: (MarkPlace.SYNC_BEGIN, None),
    Kind.STEP: (None, MarkPlace.STEP_END),
}


@dataclass(frozen=True)
class Mark:
    """One event: when it was put, when the device passed it, when the host could know."""

    place: MarkPlace
    host_ns: int
    device_ns: int
    known_ns: int
    stream: int


def put_marks(job: Job) -> list[Mark]:
    """All marks that would have been read before the trace ends."""
    stream = _Stream(job, job.stream)
    put: list[tuple[MarkPlace, int]] = []
    queries: list[int] = []
    is_told = False
    for place, host_ns, is_begin in _moments(job):
        is_told |= place in _TELLING
        if place is None:
            queries.append(host_ns)
        elif is_told and not (is_begin and put and host_ns - put[-1][1] < _STANDS_NS):
            put.append((place, host_ns))
            if place in _LOOKING:
                queries.append(host_ns)
    queries.append(job.end_ns)
    queries.sort()
    marks = []
    for place, host_ns in put:
        device_ns = stream.passes(host_ns)
        later = bisect.bisect_left(queries, max(device_ns, host_ns + 1))
        if later < len(queries):
            marks.append(Mark(place, host_ns, device_ns, queries[later], job.stream))
    return marks


def put_beside(job: Job) -> list[Mark]:
    """Those of copies on other streams, which are in order for each of these."""
    streams: dict[int, _Stream] = {}
    marks = []
    for call in job.calls:
        if call.stream is not None and call.flags & Flag.NON_BLOCKING and call.stream != job.stream:
            stream = streams.setdefault(call.stream, _Stream(job, call.stream))
            for place, host_ns in (
                (MarkPlace.BESIDE_BEGIN, call.start_ns),
                (MarkPlace.BESIDE_END, call.end_ns),
            ):
                device_ns = stream.passes(host_ns)
                marks.append(Mark(place, host_ns, device_ns, job.end_ns, call.stream))
    return marks


def _moments(job: Job) -> list[tuple[MarkPlace | None, int, bool]]:
    """MarkPlace (None: only a query), host time, whether it is before a stall; in order."""
    found: list[tuple[MarkPlace | None, int, bool]] = []
    for call in job.calls:
        before, after = _AROUND[call.kind]
        if before is not None:
            found.append((before, call.start_ns, True))
        if after is not None:
            found.append((after, call.end_ns, False))
        if _has_waited(call):
            found.append((None, call.end_ns, False))
    return sorted(found, key=lambda each: each[1])


def _has_waited(call: Call) -> bool:
    is_blocking = call.kind == Kind.COPY and not call.flags & Flag.NON_BLOCKING
    return is_blocking or call.kind == Kind.SYNC


class _Stream:
    """When a stream is done with what was launched before a moment."""

    def __init__(self, job: Job, stream: int) -> None:
        own = [work for work in job.works if work.stream == stream]
        self._called = [work.called_ns for work in own]
        self._ends = list(accumulate((work.end_ns for work in own), max))

    def passes(self, host_ns: int) -> int:
        """When the device passes an event that is put at this moment."""
        place = bisect.bisect_left(self._called, host_ns)
        last_ns = self._ends[place - 1] if place else 0
        return max(host_ns + _LATENCY_NS, last_ns)


def window_of(job: Job, marks: list[Mark]) -> tuple[int, int]:
    """From when the device was done with the first step to the last mark.

    Without an optimizer a step ends when a batch has arrived.
    """
    end = MarkPlace.STEP_END if job.of(Kind.STEP) else MarkPlace.WAIT_END
    ends = [mark.device_ns for mark in marks if mark.place == end]
    if not ends:
        return min(call.start_ns for call in job.calls), job.end_ns
    return ends[0], marks[-1].device_ns
