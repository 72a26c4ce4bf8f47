"""What the trainer is doing right now, read from the page that it shares (schema/wire.py).

A spool's name begins with its process's pid, and its header says under which descriptor that
process has the page, if it is a trainer. Words are read with pread, not through a mapping: a file
that shrinks under a mapping would kill us, and 0.6 us a read is cheap enough.
"""

import os
import time
from collections import Counter
from pathlib import Path

from fuelline.record.samplers.procfs import open_kept
from fuelline.record.samplers.tree import Process, Tree
from fuelline.schema import wire
from fuelline.schema.run.samples import Blind

NO_TRAINER = -1
MOST_MISSES = 3
"""Looks in vain at a trainer's page before it counts as hidden; one that is ending has none."""
_LISTING_SHARE = 0.001
"""Share of a core that listing the spool folder may take: it may hold 10,000 files."""


class Phases:
    """The spools of the job, and for each process the one that speaks for it."""

    def __init__(self, spool_dir: Path) -> None:
        self._dir = spool_dir
        self._changed_ns = 0
        self._list_again = False
        self._list_after_ns = 0
        self._names: dict[int, str] = {}
        self._seen: set[str] = set()
        self._fds: dict[int, int] = {}
        """By process: its page if it is a trainer, else its spool, whose phase is OUTSIDE."""
        self._trainers: set[int] = set()
        self._misses: Counter[int] = Counter()
        self._blind: list[Blind] = []

    def look_for_spools(self) -> list[int]:
        """The pids of spools that are new since the last call."""
        start_ns = time.monotonic_ns()
        if start_ns < self._list_after_ns or not self._has_changed():
            return []
        new = {path.name for path in self._dir.glob("*" + wire.SUFFIX)} - self._seen
        self._list_after_ns = start_ns + int((time.monotonic_ns() - start_ns) / _LISTING_SHARE)
        self._seen |= new
        pids = {int(pid): name for name in sorted(new) if (pid := name.partition("-")[0]).isdigit()}
        self._names.update(pids)
        return list(pids)

    def assign(self, tree: Tree) -> None:
        """Settle whose phase each process follows: its own, or the nearest trainer's above it."""
        self._close_ended(tree)
        for process in tree.processes.values():
            process.has_own_phase = self._has_phase(process)
        for process in tree.processes.values():
            line = list(tree.list_ancestors(process))
            speaker = next((each for each in line if each.has_own_phase), None)
            process.phase_fd = self._fds[speaker.pid] if speaker else self._find_any(line)

    def read(self, process: Process) -> int:
        """The `wire.Phase` of this moment, or NO_TRAINER."""
        if process.phase_fd is None:
            return NO_TRAINER
        word = os.pread(process.phase_fd, wire.WORD.size, wire.PHASE_OFFSET)
        return int.from_bytes(word, "little") if len(word) == wire.WORD.size else NO_TRAINER

    def close(self) -> None:
        """Give all descriptors back."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _has_changed(self) -> bool:
        """Whether names were added; true once more afterwards, as file times have coarse ticks."""
        try:
            changed_ns = self._dir.stat().st_mtime_ns
        except OSError:
            return False
        is_new, self._changed_ns = changed_ns != self._changed_ns, changed_ns
        is_due, self._list_again = is_new or self._list_again, is_new
        return is_due

    def _has_phase(self, process: Process) -> bool:
        """Whether a hook of this process shares its phase: loader workers never do."""
        pid = process.pid
        fd = self._open(pid)
        if fd is None or pid in self._trainers or self._misses[pid] >= MOST_MISSES:
            return pid in self._trainers
        notes = os.pread(fd, wire.NOTES.size, wire.NOTES_OFFSET).ljust(wire.NOTES.size, b"\0")
        trainer, _, _, number, *_ = wire.NOTES.unpack(notes)
        if not trainer:
            return False
        try:
            self._fds[pid] = wire.open_live(pid, number - 1)
        except OSError as refusal:
            self._miss(pid, refusal)
            return False
        os.close(fd)
        self._trainers.add(pid)
        return True

    def _miss(self, pid: int, refusal: OSError) -> None:
        self._misses[pid] += 1
        if self._misses[pid] == MOST_MISSES:
            why = f"the page that process {pid} shares cannot be opened ({refusal.strerror})"
            forbids = "comparing what workers do while training waits with what they do otherwise"
            self._blind.append(Blind("the phases of the training", why, forbids))

    def drain(self) -> list[Blind]:
        """Trainers whose phase cannot be seen, each once."""
        found, self._blind = self._blind, []
        return found

    def _open(self, pid: int) -> int | None:
        if pid not in self._fds and pid in self._names:
            try:
                self._fds[pid] = open_kept(str(self._dir / self._names[pid]))
            except OSError:
                return None
        return self._fds.get(pid)

    def _find_any(self, line: list[Process]) -> int | None:
        return next((self._fds[each.pid] for each in line if each.pid in self._fds), None)

    def _close_ended(self, tree: Tree) -> None:
        followed = {process.phase_fd for process in tree.processes.values()}
        for pid in [pid for pid in self._fds if pid not in tree.processes]:
            if self._fds[pid] not in followed:
                os.close(self._fds.pop(pid))
                self._names.pop(pid, None)
                self._trainers.discard(pid)
