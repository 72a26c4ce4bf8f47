"""What of a trace our hooks would have seen: batches, copies, reads, backward passes, steps.

Python calls are not in most traces; operators stand for them. The outermost `aten::to` with a copy
in it was a `.to(device)`, an operator that reads a value was an `.item()`, and what autograd's own
thread does while the trainer's thread does nothing is a backward pass. Batches are what torch's
profiler says of its loader, or else Python's frames of it, or else a range that somebody named so.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.schema.run.trace import CopyDirection, DeviceKind, HostKind
from fuelline.schema.wire import Flag, Kind
from fuelline.signals.traced.kernels.names import find_cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuelline.timeline.trace import Trace

__all__ = ["Call", "Job", "NotReplayableError", "read_job"]

_NEXT = re.compile(r"^(?:enumerate\(DataLoader\)#)?(?P<loader>\w+)\.__next__$")
_FRAME = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): __next__$")
_STEP = re.compile(r"^Optimizer\.step#(?P<optimizer>\w+)\.step$")
_BACKWARD = re.compile(r"Backward|autograd::")
_COPYING = ("aten::to", "aten::copy_", "aten::_to_copy")
_READING = ("aten::item", "aten::_local_scalar_dense", "aten::to", "aten::_to_copy")
_WAITING = re.compile(r"(Stream|Device|Event)Synchronize$|^hipMemcpyWithStream$|^(cuda|hip)Memcpy$")
_EVERYTHING = re.compile(r"DeviceSynchronize$")
_CALLING_NS = 50_000
"""From the call of `backward()` to the first operator on autograd's thread, at most."""
_RETURNING_NS = 20_000
_TO_DEVICE = int(CopyDirection.HOST_TO_DEVICE)
_FEWEST = 3
"""Steps that a diagnosis needs: it begins after the first."""
_REPEATS = 12
"""Of a trace with fewer steps than that: it is laid out so often, one after the other."""
_PROFILED = "ProfilerStep#"
_COMMON_BYTES_PER_NS = 10
"""Of PCI Express 3 with 16 lanes, from pinned memory."""
_MOST_LOST = 0.1
"""Of the device's events: if more of them lack the call that launched them, too much is open."""


class NotReplayableError(Exception):
    """The trace does not show what the hooks would have seen; the message says what it lacks."""


@dataclass(frozen=True)
class Call:
    """One call of the trainer that a hook watches."""

    kind: Kind
    start_ns: int
    end_ns: int
    size_bytes: int = 0
    flags: int = 0
    name: str = ""
    """Of the loader or of the optimizer."""
    stream: int | None = None
    """That a copy went over."""


@dataclass(frozen=True)
class Work:
    """What one call launched: until when a stream is busy with it."""

    stream: int
    called_ns: int
    end_ns: int
    device: int = 0


@dataclass(frozen=True)
class Job:
    """The trainer's calls in order, and all that was launched."""

    rank: int
    device: int
    calls: list[Call]
    works: list[Work]
    stream: int
    """That the optimizer launches on."""
    kernels: list[tuple[int, int]] = field(default_factory=list)
    """Of the device, on any stream, by start: what its driver counts as utilisation. A copy within
    the device is a kernel of the driver's."""
    end_ns: int = 0
    repeated_ns: tuple[int, int] | None = None
    """The stretch of the trace that the job repeats, where that shows too few steps by itself."""

    def of(self, *kinds: Kind) -> list[Call]:
        """Calls of these kinds."""
        return [call for call in self.calls if call.kind in kinds]


@dataclass(frozen=True)
class _Span:
    start_ns: int
    end_ns: int
    name: str
    kind: int
    correlation: int | None


def read_job(trace: Trace, rank: int) -> Job:
    """The job of one rank."""
    spans = _read_host(trace, rank)
    trainer = _find_trainer(spans)
    waits = _find_batches(spans).get(trainer, [])
    own = [span for span in spans[trainer] if span.kind != int(HostKind.PYTHON)]
    launched = _read_launched(trace, rank, spans)
    operators = _outermost(span for span in own if "::" in span.name)
    calls = [*waits, *_steps(own)]
    calls += _copies(operators, own, launched)
    calls += _waits(operators, own)
    calls += _backwards(spans, trainer, own, waits)
    calls.sort(key=lambda call: (call.start_ns, -call.end_ns))
    works = [
        Work(row["stream"], row["called_ns"], row["end_ns"], row["device"]) for row in launched
    ]
    device = _find_device(trace, rank, launched)
    works = [work for work in works if work.device == device]
    job = Job(
        rank=rank,
        device=device,
        calls=calls,
        works=sorted(works, key=lambda work: work.called_ns),
        stream=_find_stream(calls, works),
        kernels=_kernels(trace, rank, device),
        end_ns=max((span.end_ns for span in own), default=0),
    )
    # Without an optimizer a batch is a step.
    steps = job.of(Kind.STEP) or job.of(Kind.WAIT)
    return job if len(steps) >= _FEWEST else _repeat(job, own, steps[-1])


def _repeat(job: Job, own: list[_Span], last: Call) -> Job:
    """The same trace again and again, as a job of such steps would have been recorded.

    A repetition begins where its step is marked, or with the first call, and lasts as long as the
    ledger can tell: until calls and device are done. The last one ends with its step, so that whole
    repetitions are judged.
    """
    marked = [span.start_ns for span in own if span.name.startswith(_PROFILED)]
    first_ns = min(*marked[:1], *(call.start_ns for call in job.calls))
    done_ns = max(*(call.end_ns for call in job.calls), *(work.end_ns for work in job.works))
    shifts = [number * (done_ns - first_ns) for number in range(_REPEATS)]
    calls = [
        replace(call, start_ns=call.start_ns + shift_ns, end_ns=call.end_ns + shift_ns)
        for shift_ns in shifts
        for call in job.calls
        if shift_ns < shifts[-1] or call.end_ns <= last.end_ns
    ]
    works = [
        replace(work, called_ns=work.called_ns + shift_ns, end_ns=work.end_ns + shift_ns)
        for shift_ns in shifts
        for work in job.works
    ]
    return replace(
        job,
        calls=calls,
        works=works,
        kernels=[(begin + each, end + each) for each in shifts for begin, end in job.kernels],
        end_ns=job.end_ns + shifts[-1],
        repeated_ns=(first_ns, done_ns),
    )


def _read_host(trace: Trace, rank: int) -> dict[int, list[_Span]]:
    texts = trace.texts(rank)
    by_thread: dict[int, list[_Span]] = {}
    wanted = [int(HostKind.OP), int(HostKind.RUNTIME), int(HostKind.ANNOTATION)]
    frames = [number for number, text in texts.items() if _FRAME.search(text)]
    frame = trace.table("host", rank).filter(
        pl.col("kind").is_in(wanted) | pl.col("name").is_in(frames)
    )
    columns = ("thread", "start_ns", "end_ns", "name", "kind", "correlation")
    for thread, start, end, name, kind, correlation in frame.select(columns).iter_rows():
        span = _Span(start, end, texts.get(name, ""), kind, correlation)
        by_thread.setdefault(thread, []).append(span)
    for spans in by_thread.values():
        spans.sort(key=lambda span: (span.start_ns, -span.end_ns))
    return by_thread


def _find_trainer(spans: dict[int, list[_Span]]) -> int:
    """The thread that takes the batches; it must be the one that trains, too.

    A job whose batches come from elsewhere is known by its optimizer alone, as it is to the hooks.
    """
    batches = _find_batches(spans)
    steps = {each: len(_steps(own)) for each, own in spans.items()}
    steppers = [each for each, count in steps.items() if count]
    thread = max(batches, key=lambda each: len(batches[each]), default=None)
    if thread is None and steppers:
        return max(steppers, key=lambda each: steps[each])
    if thread is None:
        raise NotReplayableError(
            "the trace shows neither a loader nor an optimizer: no annotation is a DataLoader's "
            "__next__ or named as one, so it cannot be said what our hooks would have recorded"
        )
    if steppers and thread not in steppers:
        raise NotReplayableError(
            f"thread {thread} takes the batches and thread {steppers[0]} trains, so how long the "
            "training waits for a batch is not in the trace"
        )
    return thread


def _find_batches(spans: dict[int, list[_Span]]) -> dict[int, list[Call]]:
    """Thread to its calls of a loader, by the surest sign of one that the trace has."""
    for sign in (_as_iterator, _as_frame, _as_range):
        found = {}
        for thread, own in spans.items():
            waits = _outermost(span for span in own if sign(span))
            if waits:
                found[thread] = [
                    Call(
                        Kind.WAIT,
                        span.start_ns,
                        span.end_ns,
                        flags=int(Flag.TRAINING),
                        name=sign(span) or "",
                    )
                    for span in waits
                ]
        if found:
            return found
    return {}


def _as_iterator(span: _Span) -> str | None:
    """The loader's iterator, as torch's profiler names what it does."""
    told = _NEXT.match(span.name)
    return told["loader"] if told else None


def _as_frame(span: _Span) -> str | None:
    return "DataLoader" if span.kind == int(HostKind.PYTHON) and _FRAME.search(span.name) else None


def _as_range(span: _Span) -> str | None:
    is_range = span.kind in {int(HostKind.ANNOTATION), int(HostKind.OP)} and "::" not in span.name
    return "DataLoader" if is_range and find_cause(span.name) == "data loader" else None


def _read_launched(trace: Trace, rank: int, spans: dict[int, list[_Span]]) -> list[dict[str, Any]]:
    """One row a call that launched something: what, where, when it was called and is done."""
    calls = {
        span.correlation: span
        for own in spans.values()
        for span in own
        if span.kind == int(HostKind.RUNTIME) and span.correlation is not None
    }
    texts = trace.texts(rank)
    events = trace.table("device", rank).with_columns(
        pl.col("device").fill_null(0), pl.col("stream").fill_null(0)
    )
    rows = []
    for row in events.iter_rows(named=True):
        call = calls.get(row["correlation"])
        if call is not None:
            text = texts.get(row["name"], "")
            rows.append({**row, "called_ns": call.start_ns, "until_ns": call.end_ns, "text": text})
    return rows


def _find_device(trace: Trace, rank: int, launched: list[dict[str, Any]]) -> int:
    """The device that most calls launched on; if the trace says too seldom which they are, none."""
    events = trace.table("device", rank).with_columns(pl.col("device").fill_null(0))
    if not events.height:
        raise NotReplayableError(
            "the trace shows a loader, but nothing that a device did, so there is no truth to "
            "compare with"
        )
    lost = 1 - len(launched) / events.height
    if lost > _MOST_LOST:
        raise NotReplayableError(
            f"of {lost:.0%} of what its device did the trace does not show the call that launched "
            "it, so it cannot be said when an event would have been passed"
        )
    counts = [row["device"] for row in launched]
    return int(max(set(counts), key=counts.count))


def _kernels(trace: Trace, rank: int, device: int) -> list[tuple[int, int]]:
    events = trace.table("device", rank).with_columns(pl.col("device").fill_null(0))
    is_inside = pl.col("direction").is_in([int(CopyDirection.DEVICE_TO_DEVICE)])
    is_kernel = (pl.col("kind") != int(DeviceKind.COPY)) | is_inside.fill_null(value=False)
    busy = events.filter((pl.col("device") == device) & is_kernel).sort("start_ns")
    return list(busy.select("start_ns", "end_ns").iter_rows())


def _outermost(spans: Iterable[_Span]) -> list[_Span]:
    found: list[_Span] = []
    for span in spans:
        if not found or span.end_ns > found[-1].end_ns:
            found.append(span)
    return found


def _steps(own: list[_Span]) -> list[Call]:
    steps = _outermost(span for span in own if _STEP.match(span.name))
    return [Call(Kind.STEP, span.end_ns, span.end_ns, name=span.name) for span in steps]


def _copies(operators: list[_Span], own: list[_Span], launched: list[dict[str, Any]]) -> list[Call]:
    """Operators that copied from the host; and what was read back from the device."""
    starts = [operator.start_ns for operator in operators]
    found: dict[int, list[dict[str, Any]]] = {}
    for row in launched:
        place = bisect.bisect_right(starts, row["called_ns"]) - 1
        is_copy = row["kind"] == int(DeviceKind.COPY)
        if is_copy and place >= 0 and row["called_ns"] < operators[place].end_ns:
            found.setdefault(place, []).append(row)
    waits = _Waits(own)
    calls = []
    for place, rows in found.items():
        operator = operators[place]
        call = _as_copy(operator, rows, is_waiting=waits.any_in(operator))
        calls += [call] if call is not None else []
    return calls


def _as_copy(operator: _Span, rows: list[dict[str, Any]], *, is_waiting: bool) -> Call | None:
    directions = {row["direction"] for row in rows}
    size_bytes = sum(_size_of(row) for row in rows)
    span = (operator.start_ns, operator.end_ns)
    if _TO_DEVICE in directions and operator.name in _COPYING:
        flags = 0 if is_waiting else int(Flag.NON_BLOCKING)
        if any("Pinned" in row["text"] for row in rows):
            flags |= int(Flag.PINNED)
        streams = [row["stream"] for row in rows if row["direction"] == _TO_DEVICE]
        return Call(Kind.COPY, *span, size_bytes, flags, stream=streams[-1])
    is_read = int(CopyDirection.DEVICE_TO_HOST) in directions and operator.name in _READING
    return Call(Kind.SYNC, *span, flags=int(Flag.IMPLICIT)) if is_read and is_waiting else None


def _size_of(row: dict[str, Any]) -> int:
    """Of a copy; the hooks know it, and some traces do not say it: then from how long it took."""
    took_ns = int(row["end_ns"] - row["start_ns"])
    return int(row["size_bytes"] or max(1, took_ns * _COMMON_BYTES_PER_NS))


class _Waits:
    """Calls that return when a stream or the device is done."""

    def __init__(self, own: list[_Span]) -> None:
        self.calls = [span for span in own if _WAITING.search(span.name)]
        self._starts = [span.start_ns for span in self.calls]

    def any_in(self, span: _Span) -> bool:
        """Whether the host waited inside this one."""
        place = bisect.bisect_left(self._starts, span.start_ns)
        return place < len(self._starts) and self._starts[place] < span.end_ns


def _waits(operators: list[_Span], own: list[_Span]) -> list[Call]:
    """`torch.cuda.synchronize()`, outside of operators; the last one is the profiler's own."""
    last_ns = max((operator.end_ns for operator in operators), default=0)
    starts = [operator.start_ns for operator in operators]
    found = []
    for call in _Waits(own).calls:
        place = bisect.bisect_right(starts, call.start_ns) - 1
        is_inner = place >= 0 and call.start_ns < operators[place].end_ns
        if _EVERYTHING.search(call.name) and not is_inner and call.start_ns < last_ns:
            found.append(Call(Kind.SYNC, call.start_ns, call.end_ns))
    return found


def _backwards(
    spans: dict[int, list[_Span]], trainer: int, own: list[_Span], waits: list[Call]
) -> list[Call]:
    """What autograd's threads do in one stretch that the trainer's thread does nothing in."""
    engine = sorted(
        (
            span
            for thread, others in spans.items()
            if thread != trainer and any(_BACKWARD.search(each.name) for each in others)
            for span in _outermost(each for each in others if "::" in each.name)
        ),
        key=lambda span: span.start_ns,
    )
    taken = {(call.start_ns, call.end_ns) for call in waits}
    active = _outermost(
        span
        for span in own
        if "::" in span.name
        or span.kind == int(HostKind.RUNTIME)
        or (span.start_ns, span.end_ns) in taken
        or _STEP.match(span.name)
    )
    starts = [span.start_ns for span in active]
    found = []
    for place, group in groupby(engine, lambda span: bisect.bisect_right(starts, span.start_ns)):
        passes = list(group)
        begun_ns = passes[0].start_ns - _CALLING_NS
        ended_ns = max(span.end_ns for span in passes) + _RETURNING_NS
        if place:
            begun_ns = max(begun_ns, active[place - 1].end_ns)
        if place < len(active):
            ended_ns = min(ended_ns, active[place].start_ns)
        if ended_ns > begun_ns:
            found.append(Call(Kind.BACKWARD, begun_ns, ended_ns))
    return found


def _find_stream(calls: list[Call], works: list[Work]) -> int:
    """The stream of what was launched last before the steps' ends, or else by copies."""
    streams: list[int] = []
    called = [work.called_ns for work in sorted(works, key=lambda work: work.called_ns)]
    ordered = sorted(works, key=lambda work: work.called_ns)
    for call in calls:
        place = bisect.bisect_left(called, call.start_ns)
        if call.kind == Kind.STEP and place:
            streams.append(ordered[place - 1].stream)
    if not streams:  # that of the copies, as the hooks do it
        places = [
            bisect.bisect_left(called, each.start_ns) for each in calls if each.kind == Kind.COPY
        ]
        streams = [ordered[place].stream for place in places if place < len(ordered)]
    return max(set(streams), key=streams.count, default=0)
