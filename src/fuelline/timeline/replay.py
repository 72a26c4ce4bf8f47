"""A job's steps replayed with other durations: who would wait for whom, and how long it would take.

Each worker does its operations in the recorded order: one starts when all that had ended before it
(on that worker) have ended. Those of one collective end together, their transfer after the last of
them has started. Launch delays are not replayed, so a replay with recorded durations is a
little shorter than the recording. Price: about 5 us an operation in pure Python.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CollectiveKey = tuple[int, int]
"""A group and a number within it."""

_SLACK_NS = 500_000
_SLACK_SHARE = 0.1
"""Clocks and single-precision times let an operation seem to start a little before the one that it
waits for has ended: so much, and at most this share of that one."""


class StuckError(ValueError):
    """The recorded order cannot be replayed: a worker waits for one that never comes."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of one worker."""

    worker: int
    start_ns: int
    end_ns: int
    group: int | None = None
    """Whose collective it is a part of; None: of none."""
    sequence: int | None = None
    """Of the collective within the group."""

    @property
    def collective(self) -> CollectiveKey | None:
        """Operations of several workers with the same one are one collective."""
        if self.group is None or self.sequence is None:
            return None
        return self.group, self.sequence


class ReplayedStep:
    """One step of all workers, ready to be replayed any number of times."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self._members: dict[CollectiveKey, list[int]] = defaultdict(list)
        workers: dict[int, list[int]] = defaultdict(list)
        for number, operation in enumerate(operations):
            workers[operation.worker].append(number)
            if operation.collective is not None:
                self._members[operation.collective].append(number)
        self._programs = {worker: self._order(own) for worker, own in workers.items()}

    def durations_ns(self) -> list[int]:
        """As recorded; in a collective, the transfer: from the last start to the end of each."""
        durations = [each.end_ns - each.start_ns for each in self.operations]
        for members in self._members.values():
            last_ns = max(self.operations[number].start_ns for number in members)
            for number in members:
                durations[number] = max(0, self.operations[number].end_ns - last_ns)
        return durations

    def replay_ns(self, durations_ns: Sequence[float]) -> float:
        """How long the step takes with these durations, in the order of the operations."""
        replay = _Replay(self, durations_ns)
        replay.run()
        return replay.end_ns

    @property
    def programs(self) -> dict[int, list[int]]:
        """By worker: operations as they start, each `~number` where it must have ended."""
        return self._programs

    @property
    def members(self) -> dict[CollectiveKey, list[int]]:
        """The operations of each collective."""
        return self._members

    def _order(self, own: list[int]) -> list[int]:
        operations = self.operations
        own.sort(key=lambda number: (operations[number].start_ns, operations[number].end_ns))
        program: list[int] = []
        running: list[tuple[float, int]] = []
        for number in own:
            start_ns, end_ns = operations[number].start_ns, operations[number].end_ns
            while running and running[0][0] <= start_ns:
                program.append(~heapq.heappop(running)[1])
            program.append(number)
            slack_ns = min(_SLACK_NS, _SLACK_SHARE * (end_ns - start_ns))
            heapq.heappush(running, (end_ns - slack_ns, number))
        program.extend(~number for _, number in sorted(running))
        return program


class _Replay:
    """One replay of a step: each worker goes on until it must wait for a collective."""

    def __init__(self, step: ReplayedStep, durations_ns: Sequence[float]) -> None:
        self._step = step
        self._durations_ns = durations_ns
        self._missing = {collective: len(own) for collective, own in step.members.items()}
        self._complete_ns: dict[CollectiveKey, float] = dict.fromkeys(step.members, 0.0)
        self._waiting: dict[CollectiveKey, list[int]] = defaultdict(list)
        self._starts_ns: dict[int, float] = {}
        self._at = dict.fromkeys(step.programs, 0)
        self._now_ns = dict.fromkeys(step.programs, 0.0)
        self.end_ns = 0.0

    def run(self) -> None:
        ready = list(self._step.programs)
        while ready:
            self._advance(ready.pop(), ready)
        if any(self._at[worker] < len(own) for worker, own in self._step.programs.items()):
            raise StuckError("the recorded order of operations cannot be replayed")
        self.end_ns = max(self._now_ns.values(), default=0.0)

    def _advance(self, worker: int, ready: list[int]) -> None:
        program, now_ns, at = self._step.programs[worker], self._now_ns[worker], self._at[worker]
        operations = self._step.operations
        while at < len(program):
            number = program[at]
            if number >= 0:
                self._starts_ns[number] = now_ns
                collective = operations[number].collective
                if collective is not None:
                    self._arrive(collective, now_ns, ready)
            else:
                number = ~number
                collective = operations[number].collective
                if collective is not None and self._missing[collective]:
                    self._waiting[collective].append(worker)
                    break
                began_ns = (
                    self._starts_ns[number] if collective is None else self._complete_ns[collective]
                )
                now_ns = max(now_ns, began_ns + self._durations_ns[number])
            at += 1
        self._at[worker], self._now_ns[worker] = at, now_ns

    def _arrive(self, collective: CollectiveKey, now_ns: float, ready: list[int]) -> None:
        self._complete_ns[collective] = max(self._complete_ns[collective], now_ns)
        self._missing[collective] -= 1
        if not self._missing[collective]:
            ready.extend(self._waiting.pop(collective, ()))
