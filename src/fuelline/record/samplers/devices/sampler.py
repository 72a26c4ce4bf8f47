"""Asks all accelerators again and again, in its own thread, and gives rows for the journal.

A driver may take milliseconds to answer, and minutes for a device that fell off the bus; sampling
of the job's threads must not wait for it. Cheap values are read up to ten times a second and kept
as means over a second. A lost device is a Blind row; the others go on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.record.pace import FAILURES_TO_GIVE_UP, Task, run_guarded
from fuelline.record.samplers.devices import find_devices
from fuelline.record.samplers.devices.device import LostError, Rate
from fuelline.record.samplers.devices.processes import Occupants
from fuelline.schema.run.samples import Blind, DeviceSample, DeviceSeen

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.record.samplers.devices.device import Device, FoundDevices
    from fuelline.schema.run.samples import Row

_MS = 1_000_000
_S = 1000 * _MS
STOP_TIMEOUT_S = 1.0
"""How long the last answer may take; the launcher gives the whole observer three seconds."""


class Devices:
    """All accelerators of the host, and the thread that asks them."""

    def __init__(self, find: Callable[[int], FoundDevices] = find_devices) -> None:
        self.job_pids: frozenset[int] = frozenset()
        """Set by the observer: processes of the job that live now."""
        self.cpu_ns = 0
        """What the thread has cost."""
        self._find = find
        self._rows: deque[Row] = deque()  # one thread appends, another takes: no lock needed
        self._live: dict[str, Device] = {}
        self._reported: dict[str, DeviceSeen] = {}
        self._means: dict[str, _Means] = {}
        self._occupants = Occupants()
        self._must_stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="devices", daemon=True)
        self.tasks = [
            Task(
                "fast device counters",
                self.read_fast,
                100 * _MS,
                0.006,
                jitter_frac=0.3,
                slack_frac=0,
            ),
            Task("device counters", self.read_second, 1 * _S, 0.002),
            Task("device errors and links", self.read_slow, 5 * _S, 0.001),
            Task("processes on devices", self.look_at_processes, 2 * _S, 0.001),
        ]
        """Together 1 % of a core at most; a slow driver is asked less often instead."""

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a driver that does not answer is left behind."""
        self._must_stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)

    def drain(self) -> list[Row]:
        """The rows since the last call."""
        rows = []
        while self._rows:
            rows.append(self._rows.popleft())
        return rows

    def _run(self) -> None:
        self._open_guarded()
        while self._live and not self._must_stop.wait(self._take_turns() / _S):
            self.cpu_ns = time.thread_time_ns()
        self.finish(time.monotonic_ns())

    def _open_guarded(self) -> None:
        opening = Task("accelerators", self.open, 1 * _S, 1.0)
        for failures in range(1, FAILURES_TO_GIVE_UP + 1):
            self._rows.extend(run_guarded(opening, time.monotonic_ns()))
            if opening.failures < failures:
                return

    def open(self, now_ns: int) -> None:
        """Find what there is."""
        found = self._find(now_ns)
        self._rows.extend(found.blinds)
        self._live = {device.seen.device: device for device in found.devices}
        self._means = {key: _Means() for key in self._live}

    def _take_turns(self) -> int:
        for task in self.tasks:
            now_ns = time.monotonic_ns()
            if task.due_ns <= now_ns and task.failures < FAILURES_TO_GIVE_UP:
                self._rows.extend(run_guarded(task, now_ns))
        waking = [task.wake_ns for task in self.tasks if task.failures < FAILURES_TO_GIVE_UP]
        return max(min(waking, default=time.monotonic_ns() + _S) - time.monotonic_ns(), 0)

    def read_fast(self, now_ns: int) -> None:
        """Add to the means of this second."""
        for key, values in self._read_all(Rate.FAST, now_ns):
            self._means[key].add(values)

    def read_second(self, now_ns: int) -> None:
        """Read what is worth reading once a second and write it with the means."""
        for key, values in self._read_all(Rate.SECOND, now_ns):
            self._write(now_ns, key, {**self._means[key].take(), **values})
        self._tell_news()

    def read_slow(self, now_ns: int) -> None:
        """Errors and links."""
        for key, values in self._read_all(Rate.SLOW, now_ns):
            self._write(now_ns, key, values)

    def look_at_processes(self, now_ns: int) -> None:
        """Which processes of the job are on which device."""
        for key, device in list(self._live.items()):
            try:
                pids = device.find_processes()
            except LostError as error:
                self._lose(key, now_ns, error)
                continue
            if pids is not None:
                self._rows.extend(self._occupants.look(now_ns, key, pids, self.job_pids))

    def finish(self, now_ns: int) -> None:
        """Write what is not written yet."""
        for key in self._live:
            self._write(now_ns, key, self._means[key].take())
        self._settle_processes()
        self._tell_news()

    def _settle_processes(self) -> None:
        """Say now that no process of the job was on a device, or why that cannot be said."""
        hidden = self._occupants.why_hidden(Path("/proc/self/ns/pid"))
        if hidden is None:
            self._rows.extend(self._occupants.take_back())
            return
        for device in self._live.values():
            device.refuse("processes", hidden)
        forbids = "knowing which accelerators are the job's; all visible ones count as its own"
        self._rows.append(Blind("which processes use which GPU", hidden, forbids))

    def _read_all(self, rate: Rate, now_ns: int) -> list[tuple[str, dict[str, float]]]:
        answers = []
        for key, device in list(self._live.items()):
            try:
                answers.append((key, device.read(rate)))
            except LostError as error:  # noqa: PERF203 - one lost device must not silence the rest
                self._lose(key, now_ns, error)
        return answers

    def _lose(self, key: str, now_ns: int, error: LostError) -> None:
        self._tell_news()  # a device that was lost from the start must be known, too
        del self._live[key]
        why = f"the driver lost it while it was watched ({error})"
        self._rows.append(DeviceSample(now_ns, key, {"lost": 1.0}))
        self._rows.append(Blind(f"{key} from that moment", why, "what that accelerator did then"))

    def _tell_news(self) -> None:
        for key, device in self._live.items():
            self._rows.extend(device.blinds)
            device.blinds.clear()
            if self._reported.get(key) != device.seen:
                self._reported[key] = device.seen
                self._rows.append(device.seen)

    def _write(self, now_ns: int, key: str, values: dict[str, float]) -> None:
        if values:
            self._rows.append(DeviceSample(now_ns, key, values))


class _Means:
    """Means of named values since they were last taken."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Rounded: a recording needs no more than five digits."""
        means = {name: _five_digits(self._sums[name] / n) for name, n in self._counts.items()}
        self._sums, self._counts = {}, {}
        return means


def _five_digits(value: float) -> float:
    return float(f"{value:.5g}")
