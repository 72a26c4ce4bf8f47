"""What threads did in the last seconds: on a core, waiting for one, blocked on what and where.

Time on a core and in the run queue comes from the scheduler's clocks and is exact; the rest is
split by the samples of blocked states, of which a thread among many gets only a few.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.facts import PlaceFacts
from fuelline.schema.diagnosis.live import Share
from fuelline.signals.live.window import WINDOW_NS

if TYPE_CHECKING:
    from fuelline.schema.run.samples import Place, ThreadClock, ThreadState

IDLE_LOOK_NS = 4 * 10**9
"""An idle thread's clock is read this often; no news means that nothing has changed."""
_ON_FILES = frozenset({"read", "metadata", "fault", "socket", "write"})
_IDLE = "pipe"
"""A loader's worker that has nothing to do waits for its queue."""


@dataclass
class _SeenThread:
    states: deque[ThreadState] = field(default_factory=deque)
    clocks: deque[ThreadClock] = field(default_factory=deque)


class LiveThreads:
    """All threads of the job that the observer told of."""

    def __init__(self) -> None:
        self._threads: dict[tuple[int, int], _SeenThread] = {}
        self._places: dict[int, Place] = {}
        self._newest_ns = 0

    def add_place(self, place: Place) -> None:
        """A place was named."""
        self._places[place.id] = place

    def add_state(self, row: ThreadState) -> None:
        """A thread was seen in a state."""
        self._newest_ns = max(self._newest_ns, row.window_ns)
        self._thread(row.pid, row.tid).states.append(row)

    def add_clock(self, row: ThreadClock) -> None:
        """A thread's clocks were read."""
        self._newest_ns = max(self._newest_ns, row.at_ns)
        self._thread(row.pid, row.tid).clocks.append(row)

    def forget(self) -> None:
        """Let go of all that is older than the last seconds, but for one reading of each clock."""
        since_ns = self._newest_ns - WINDOW_NS
        for key, thread in list(self._threads.items()):
            while thread.states and thread.states[0].window_ns < since_ns:
                thread.states.popleft()
            while len(thread.clocks) > 1 and thread.clocks[1].at_ns <= since_ns:
                thread.clocks.popleft()
            if not thread.states and (not thread.clocks or thread.clocks[-1].at_ns < since_ns):
                del self._threads[key]

    def mix(self, pid: int, tid: int) -> list[Share]:
        """Shares of the last seconds that sum to 1; empty if nothing was seen."""
        thread = self._threads.get((pid, tid), _SeenThread())
        counts = Counter[str]()
        for row in thread.states:
            counts["idle" if row.state == _IDLE else row.state] += row.count
        clocks = self._clock_shares(thread)
        if clocks is None:
            return _shares(counts)
        del counts["running"]
        blocked = _shares(counts) or [Share(part="unseen", frac=1.0)]
        rest = max(0.0, 1.0 - sum(share.frac for share in clocks))
        return [*clocks, *(Share(part=each.part, frac=each.frac * rest) for each in blocked)]

    def place(self, pid: int, tid: int) -> PlaceFacts | None:
        """Where it was blocked most; None if it was not, or nobody could tell where."""
        rows = [
            row
            for row in self._threads.get((pid, tid), _SeenThread()).states
            if row.state in _ON_FILES
        ]
        counts = Counter[tuple[int, str]]()
        for row in rows:
            if row.place in self._places:
                counts[row.place, row.syscall] += row.count
        if not counts:
            return None
        (number, syscall), count = counts.most_common(1)[0]
        place = self._places[number]
        return PlaceFacts(
            path=place.path,
            mount=place.mount,
            fstype=place.fstype,
            device=place.device,
            syscall=syscall,
            share=count / sum(row.count for row in rows),
        )

    def _thread(self, pid: int, tid: int) -> _SeenThread:
        found = self._threads.get((pid, tid))
        if found is None:
            found = self._threads[pid, tid] = _SeenThread()
        return found

    def _clock_shares(self, thread: _SeenThread) -> list[Share] | None:
        if not thread.clocks:
            return None
        first, last = thread.clocks[0], thread.clocks[-1]
        since_ns = max(first.at_ns, self._newest_ns - WINDOW_NS - IDLE_LOOK_NS)
        span_ns = self._newest_ns - since_ns
        if span_ns <= 0:
            return None
        running = min(1.0, (last.oncpu_ns - first.oncpu_ns) / span_ns)
        queued = min(1.0 - running, (last.runq_ns - first.runq_ns) / span_ns)
        return [Share(part="running", frac=running), Share(part="for core", frac=queued)]


def _shares(counts: Counter[str]) -> list[Share]:
    whole = sum(counts.values())
    return [Share(part=part, frac=count / whole) for part, count in counts.most_common() if count]
