"""Planes of an XSpace with their dictionaries: events by line, stats by name.

A plane keeps names of events and of stats once and refers to them by number; a stat's value may be
such a number, too. The same stat bytes occur thousands of times, so what they say is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuelline.ingest.protobuf import text
from fuelline.ingest.xplane.messages import (
    ENTRY,
    EVENT,
    EVENT_METADATA,
    LINE,
    PLANE,
    STAT,
    STAT_METADATA,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.ingest.protobuf import Buffer, Message, Span

_MOST_REMEMBERED = 200_000
"""Stats with unique values (addresses, ids) would otherwise fill the memory."""

FAR_NS = (1 << 63) - 1
"""Sums of damaged times stop here, where `keep_sane` leaves them out."""

Value = int | float | str | None


@dataclass(frozen=True, slots=True)
class PlaneEvent:
    """One event of a line; times on the file's clock."""

    name: str
    start_ns: int
    end_ns: int
    stats: dict[str, Value]


@dataclass(frozen=True)
class PlaneLine:
    """One thread or stream."""

    number: int
    name: str
    events: int
    data: bytes
    base: int
    spans: list[Span]
    timestamp_ns: int


class Plane:
    """One plane, its dictionaries read, its lines still bytes."""

    def __init__(self, data: Buffer, span: Span) -> None:
        self._data = data
        name, self._lines, events, stats, self._stats = PLANE.read(data, *span)
        self.name = text(data, name)
        self._events = self._read_names(events, EVENT_METADATA)
        self._stat_names = self._read_names(stats, STAT_METADATA)
        self._remembered: dict[bytes, tuple[str, Value]] = {}

    def stats(self) -> dict[str, Value]:
        """Those of the plane itself: what the device is."""
        return dict(self._stat(self._data[start:end], start) for start, end in self._stats)

    def lines(self) -> Iterator[PlaneLine]:
        """Each copied out of the file only when it is asked for."""
        for start, end in self._lines:
            data = self._data[start:end]
            number, name, shown, timestamp_ns, spans = LINE.read(data, 0, len(data), start)
            yield PlaneLine(
                number=number or 0,
                name=text(data, name) or text(data, shown),
                events=len(spans),
                data=data,
                base=start,
                spans=spans,
                timestamp_ns=timestamp_ns or 0,
            )

    def events(self, line: PlaneLine) -> Iterator[PlaneEvent]:
        """Events with a time; those that only count occurrences have none."""
        for start, end in line.spans:
            metadata, offset_ps, duration_ps, stats, occurrences = EVENT.read(
                line.data, start, end, line.base
            )
            if occurrences is not None and offset_ps is None:
                continue
            start_ns = line.timestamp_ns + (offset_ps or 0) // 1000
            end_ns = line.timestamp_ns + ((offset_ps or 0) + (duration_ps or 0)) // 1000
            yield PlaneEvent(
                name=self._events.get(metadata or 0, ""),
                start_ns=max(-FAR_NS, min(FAR_NS, start_ns)),
                end_ns=max(-FAR_NS, min(FAR_NS, end_ns)),
                stats=dict(
                    self._stat(line.data[each:until], line.base + each) for each, until in stats
                ),
            )

    def _read_names(self, entries: list[Span], kind: Message) -> dict[int, str]:
        names = {}
        for start, end in entries:
            key, value = ENTRY.read(self._data, start, end)
            if value is not None:
                names[key or 0] = text(self._data, kind.read(self._data, *value)[0])
        return names

    def _stat(self, data: bytes, base: int) -> tuple[str, Value]:
        found = self._remembered.get(data)
        if found is None:
            found = self._read_stat(data, base)
            if len(self._remembered) < _MOST_REMEMBERED:
                self._remembered[data] = found
        return found

    def _read_stat(self, data: bytes, base: int) -> tuple[str, Value]:
        metadata, double, unsigned, signed, span, reference = STAT.read(data, 0, len(data), base)
        value: Any = next((each for each in (double, unsigned, signed) if each is not None), None)
        if span is not None:
            value = text(data, span)
        elif reference is not None:
            value = self._stat_names.get(reference, "")
        return self._stat_names.get(metadata or 0, ""), value
