"""Which processes of the job are on which device, and whether that can be seen at all.

Inside a container the driver either shows no processes or shows them by their numbers outside. As
long as none of them is the job's there, nothing is concluded; looks that found none are kept back
and count only once the first match has shown that the numbers are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.run.samples import DeviceProcess, DeviceSample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fuelline.schema.run.samples import Row

INITIAL_NAMESPACE = 4026531836
"""Inode of the first pid namespace of every Linux (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""
_NEWS_BYTES = 64 * 1024 * 1024
"""A change of memory that is worth a row."""
_MOST_KEPT_BACK = 10_000


class Occupants:
    """What was last seen on each device."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], int] = {}
        self._kept_back: list[DeviceSample] = []
        self._has_matched = False

    def look(
        self, now_ns: int, device: str, pids: Mapping[int, int], job_pids: frozenset[int]
    ) -> Iterator[Row]:
        """Rows for what changed on one device since the last look at it."""
        is_on = not job_pids.isdisjoint(pids)
        share = DeviceSample(now_ns, device, {"job.frac": float(is_on)})
        if is_on and not self._has_matched:
            self._has_matched = True
            yield from self._kept_back
            self._kept_back = []
        if self._has_matched:
            yield share
        elif len(self._kept_back) < _MOST_KEPT_BACK:
            self._kept_back.append(share)
        yield from self._changes(now_ns, device, pids, job_pids)

    def why_hidden(self, own_namespace: Path) -> str | None:
        """Why no process of the job was found on any device; None if that can be believed."""
        if self._has_matched or not self._kept_back or is_initial_namespace(own_namespace):
            return None
        return (
            "inside this container (pid namespace) the driver's process numbers are not the "
            "job's; start it with --pid=host to see them"
        )

    def take_back(self) -> list[DeviceSample]:
        """Looks that were kept back, for when they can be believed after all."""
        kept, self._kept_back = self._kept_back, []
        return kept

    def _changes(
        self, now_ns: int, device: str, pids: Mapping[int, int], job_pids: frozenset[int]
    ) -> Iterator[DeviceProcess]:
        for pid, size in pids.items():
            last = self._last.get((device, pid))
            if last is None or abs(size - last) >= _NEWS_BYTES:
                self._last[device, pid] = size
                yield DeviceProcess(now_ns, device, pid, size, pid in job_pids)
        for known, pid in list(self._last):
            if known == device and pid not in pids:
                del self._last[known, pid]
                yield DeviceProcess(now_ns, device, pid, 0, pid in job_pids)


def is_initial_namespace(namespace: Path) -> bool:
    """Whether process numbers here are the host's own."""
    try:
        return namespace.stat().st_ino == INITIAL_NAMESPACE
    except OSError:
        return True
