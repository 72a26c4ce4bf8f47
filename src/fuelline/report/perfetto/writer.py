"""Tracks as trace-event JSON, written as they come; one table is in memory at a time.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event
Format), as Perfetto reads it: microseconds with a fraction, complete events that nest on a track,
names of processes and threads as metadata. Numbers are written exactly, to the nanosecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fuelline.report.perfetto.track import Instants, Spans, Values
from fuelline.schema.names import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from fuelline.report.perfetto.track import Track

SIGN = b'"otherData":{"title":"fuelline '
"""Every file that is written here has it at its beginning, before the version and the run."""
_MOST_TEXT = 2000
_ENCODE = msgspec.json.Encoder().encode
_NAMED = ("start_ns", "end_ns", "at_ns", "name", "value", "category")
"""Columns that are not details."""


def write_tracks(tracks: Iterable[Track], stream: BinaryIO, title: str) -> int:
    """Write all tracks; how many events there were."""
    head = _ENCODE({"displayTimeUnit": "ns", "otherData": {"title": _clip(title)}})
    stream.write(head[:-1] + b',"traceEvents":[')
    count = 0
    for event in _Numbering().events(tracks):
        stream.write(b",\n" if count else b"\n")
        stream.write(_ENCODE(event))
        count += 1
    stream.write(b"\n]}\n")
    return count


class _Numbering:
    """Processes and lines of the screen by number, in the order in which they come."""

    def __init__(self) -> None:
        self._processes: dict[str, int] = {}
        self._lines = 0

    def events(self, tracks: Iterable[Track]) -> Iterator[dict[str, Any]]:
        for track in tracks:
            if not track.frame.height:
                continue
            if track.process not in self._processes:
                self._processes[track.process] = len(self._processes) + 1
                yield from self._name_process(track.process)
            process = self._processes[track.process]
            if isinstance(track, Spans):
                yield from self._spans(track, process)
            elif isinstance(track, Instants):
                yield from self._instants(track, process)
            else:
                yield from _values(track, process)

    def _name_process(self, name: str) -> Iterator[dict[str, Any]]:
        number = self._processes[name]
        yield _meta("process_name", number, 0, name=_clip(name))
        yield _meta("process_sort_index", number, 0, sort_index=number)

    def _line(self, process: int, name: str) -> Iterator[dict[str, Any]]:
        self._lines += 1
        yield _meta("thread_name", process, self._lines, name=_clip(name))
        yield _meta("thread_sort_index", process, self._lines, sort_index=self._lines)

    def _spans(self, track: Spans, process: int) -> Iterator[dict[str, Any]]:
        lanes: list[list[int]] = []
        numbers: list[int] = []
        ordered = track.frame.sort("start_ns", "end_ns", descending=[False, True])
        for row in ordered.iter_rows(named=True):
            place = _find_lane(lanes, row["start_ns"], row["end_ns"])
            if place == len(numbers):
                shown = track.name if not place else f"{track.name} ({place + 1})"
                yield from self._line(process, shown)
                numbers.append(self._lines)
            yield {
                "ph": "X",
                "name": _clip(str(row["name"])),
                "cat": row.get("category") or track.category,
                "pid": process,
                "tid": numbers[place],
                "ts": _micros(row["start_ns"]),
                "dur": _micros(row["end_ns"] - row["start_ns"]),
                "args": _details(row),
            }

    def _instants(self, track: Instants, process: int) -> Iterator[dict[str, Any]]:
        yield from self._line(process, track.name)
        for row in track.frame.sort("at_ns").iter_rows(named=True):
            yield {
                "ph": "i",
                "s": "t",
                "name": _clip(str(row["name"])),
                "cat": "fuelline",
                "pid": process,
                "tid": self._lines,
                "ts": _micros(row["at_ns"]),
                "args": _details(row),
            }


def _find_lane(lanes: list[list[int]], start_ns: int, end_ns: int) -> int:
    """The first line on which a span lies beside or wholly inside what is there; takes its place.

    Each lane is a stack of the ends of spans that are still open.
    """
    for place, open_ends in enumerate(lanes):
        while open_ends and open_ends[-1] <= start_ns:
            open_ends.pop()
        if not open_ends or open_ends[-1] >= end_ns:
            open_ends.append(end_ns)
            return place
    lanes.append([end_ns])
    return len(lanes) - 1


def _values(track: Values, process: int) -> Iterator[dict[str, Any]]:
    for at_ns, value in track.frame.sort("at_ns").select("at_ns", "value").iter_rows():
        yield {
            "ph": "C",
            "name": _clip(track.name),
            "pid": process,
            "ts": _micros(at_ns),
            "args": {"value": value},
        }


def _meta(kind: str, process: int, line: int, **args: object) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": line, "ts": 0, "args": args}


def _details(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _clip(value) if isinstance(value, str) else value
        for name, value in row.items()
        if value is not None and name not in _NAMED
    }


def _micros(nanos: int) -> msgspec.Raw:
    """Exactly: `1234567` -> `1234.567`; a float would lose digits from 104 days on."""
    whole, rest = divmod(abs(nanos), 1000)
    sign = "-" if nanos < 0 else ""
    return msgspec.Raw(f"{sign}{whole}.{rest:03d}".encode())


def _clip(text: str) -> str:
    return encodable(text[:_MOST_TEXT])
