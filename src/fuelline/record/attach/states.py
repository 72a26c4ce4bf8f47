"""Thread states of a job without hooks: what the training did at their moment is known later.

Samples wait until the trainer's own time is laid out up to their moment; then they count.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fuelline.record.attach.estimate import Stay
from fuelline.record.attach.frames import Part
from fuelline.record.samplers.blocked import Resolver
from fuelline.record.samplers.phases import NO_TRAINER, Phases
from fuelline.record.samplers.threads import WINDOW_NS, ThreadStates
from fuelline.record.samplers.tree import Process, Tree
from fuelline.schema.run.samples import ThreadState
from fuelline.schema.wire import Phase


class AttachedPhases(Phases):
    """What a trainer does at the moment is not known: nothing in it says so."""

    def __init__(self, spool_dir: Path, trainers: frozenset[int]) -> None:
        super().__init__(spool_dir)
        self.trainers = trainers
        self.speakers: dict[int, int] = {}

    def look_for_spools(self) -> list[int]:
        """There are none but our own."""
        return []

    def assign(self, tree: Tree) -> None:
        """Settle which trainer each process descends from."""
        self.speakers.clear()
        for process in tree.processes.values():
            process.has_own_phase = process.pid in self.trainers
        for process in tree.processes.values():
            line = tree.list_ancestors(process)
            speaker = next((each.pid for each in line if each.has_own_phase), None)
            if speaker is not None:
                self.speakers[process.pid] = speaker

    def read(self, _process: Process) -> int:
        """Not known at the moment of the sample."""
        return NO_TRAINER


class WaitingStates(ThreadStates):
    """Samples wait until it is known what the trainer did at their moment."""

    def __init__(self, tree: Tree, phases: AttachedPhases, resolver: Resolver) -> None:
        super().__init__(tree, phases, resolver)
        self.phases_by_pid = phases
        self._waiting: list[tuple[int, int, int, int, tuple[str, str, int]]] = []
        self.stays: dict[int, list[Stay]] = {}
        self.guesses: dict[int, list[tuple[int, str]]] = {}
        """By trainer: moments and states of its main thread, until taken."""

    def sample(self, now_ns: int) -> None:
        """One round over the job."""
        if not self._rounds:
            self._plan_rounds()
        for process, thread in self._rounds.pop():
            try:
                verdict = self._explain(process, thread, now_ns)
            except OSError:  # the thread has ended
                continue
            thread.last_state = verdict[0]
            speaker = self.phases_by_pid.speakers.get(process.pid, 0)
            self._waiting.append((now_ns, speaker, thread.pid, thread.tid, verdict))
            if thread.tid == speaker:
                self.guesses.setdefault(speaker, []).append((now_ns, verdict[0]))

    def settle(
        self, trainer: int, until_ns: int, part_at: Callable[[int], Part | None]
    ) -> list[tuple[Part, bool]]:
        """Count the samples of one trainer's processes up to a moment.

        Gives those of its main thread: what it was in, and whether it ran or was ready to.
        """
        own = []
        counts: Counter[tuple[int, int, int, int, tuple[str, str, int]]] = Counter()
        left = []
        for sample in self._waiting:
            at_ns, speaker, pid, tid, verdict = sample
            if speaker != trainer or at_ns >= until_ns:
                left.append(sample)
                continue
            part = part_at(at_ns)
            phase = NO_TRAINER if not speaker else _phase_of(part)
            if tid == speaker and part is not None:
                own.append((part, verdict[0] == "running"))
            counts[at_ns - at_ns % WINDOW_NS, pid, tid, phase, verdict] += 1
        self._waiting = left
        for (window_ns, pid, tid, phase, verdict), count in counts.items():
            self._rows.append(ThreadState(window_ns, pid, tid, phase, *verdict, count))
            if tid == pid:
                stay = Stay(window_ns, phase == Phase.WAIT, verdict[0], count)
                self.stays.setdefault(pid, []).append(stay)
        return own

    def _close_window(self) -> None:
        """Windows are closed by `settle`."""


def _phase_of(part: Part | None) -> int:
    return int(Phase.OUTSIDE if part is None else _PHASES.get(part, Phase.COMPUTE))


_PHASES: dict[Part, Phase] = {
    "input": Phase.WAIT,
    "epoch start": Phase.SOURCE_START,
    "checkpoint": Phase.CHECKPOINT,
    "validation": Phase.EVAL,
}
