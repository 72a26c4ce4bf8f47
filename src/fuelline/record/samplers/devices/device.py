"""One accelerator, whoever made it: readers by rate, and what became of those that failed.

A reader that the chip or driver does not support, or that this user may not call, is dropped for
good and the reason kept. A device that the driver has lost is never asked again: calls to it may
take seconds or never return. What must stay true: no error of a management library gets past here
except as `LostError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from fuelline.schema.run.samples import Blind, DeviceSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Values = Iterable[tuple[str, float]]
    Reader = Callable[[], Values]

PASSING_FAILURES = 3
"""Failures in a row of a reader that may still recover; then it is dropped."""


class Rate(Enum):
    """How often something is worth reading."""

    FAST = "cheap and quick to change, up to ten times a second"
    SECOND = "once a second"
    SLOW = "counters of errors and links, once in five seconds"


class Trouble(Enum):
    """What an error of a management library means for the reader that met it."""

    UNSUPPORTED = "this chip or driver does not have it"
    FORBIDDEN = "this user may not ask"
    LOST = "the device is gone"
    PASSING = "it may work the next time"


class LostError(Exception):
    """The driver has lost the device; its text says how the driver put it."""


class UnavailableError(Exception):
    """There are accelerators, or should be, and they cannot be asked; `how` says what to do."""

    def __init__(self, why: str, how: str) -> None:
        super().__init__(why)
        self.how = how


@dataclass
class Device:
    """What can be asked of one device."""

    seen: DeviceSeen
    readers: dict[Rate, dict[str, Reader]]
    """Kind of reading to its reader, by rate."""
    list_processes: Callable[[], dict[int, int]]
    """Pids on the device to bytes of its memory, -1 unknown."""
    errors: type[Exception] | tuple[type[Exception], ...]
    """Base of what the vendor's bindings raise."""
    judge: Callable[[Exception], Trouble]
    blinds: list[Blind] = field(default_factory=list)
    """What was refused since the last look at this list."""
    _failures: dict[str, int] = field(default_factory=dict)

    def read(self, rate: Rate) -> dict[str, float]:
        """All values of one rate that can be had."""
        values: dict[str, float] = {}
        for kind, reader in list(self.readers[rate].items()):
            try:
                values.update((name, value) for name, value in reader() if math.isfinite(value))
                self._failures.pop(kind, None)
            except self.errors as error:  # noqa: PERF203 - each reader fails for itself
                if self._is_dropped(kind, error):
                    del self.readers[rate][kind]
        return values

    def find_processes(self) -> dict[int, int] | None:
        """The processes on it; None if they cannot be listed."""
        if "processes" in self.seen.refusals:
            return None
        try:
            return self.list_processes()
        except self.errors as error:
            self._is_dropped("processes", error)
            return None

    def refuse(self, kind: str, why: str) -> None:
        """Keep why a kind of reading cannot be had."""
        refusals = {**self.seen.refusals, kind: why}
        self.seen = msgspec.structs.replace(self.seen, refusals=refusals)

    def _is_dropped(self, kind: str, error: Exception) -> bool:
        trouble = self.judge(error)
        if trouble is Trouble.LOST:
            raise LostError(str(error)) from None
        self._failures[kind] = self._failures.get(kind, 0) + 1
        if trouble is Trouble.PASSING and self._failures[kind] < PASSING_FAILURES:
            return False
        self.refuse(kind, str(error))
        if trouble is Trouble.FORBIDDEN:
            self.blinds.append(_forbidden(self.seen.device, kind, str(error)))
        return True


def _forbidden(device: str, kind: str, why: str) -> Blind:
    return Blind(
        f"{kind} of {device}",
        f"this user may not read it ({why}); `fuelline doctor` says how to allow it",
        f"conclusions from {kind} of that accelerator",
    )


@dataclass(frozen=True)
class FoundDevices:
    """Devices, and why others could not be opened."""

    devices: tuple[Device, ...] = ()
    blinds: tuple[Blind, ...] = ()

    @property
    def cards(self) -> int:
        """How many whole devices there are; slices are not counted."""
        return sum(not device.seen.parent for device in self.devices)

    def __add__(self, other: FoundDevices) -> FoundDevices:
        return FoundDevices(self.devices + other.devices, self.blinds + other.blinds)


def cannot_ask(vendor: str, error: UnavailableError) -> FoundDevices:
    """No device, and one row that says why and what to do."""
    blind = Blind(
        f"{vendor} GPU counters",
        f"{error}; {error.how}",
        "how busy, throttled or faulty the accelerators were",
    )
    return FoundDevices(blinds=(blind,))
