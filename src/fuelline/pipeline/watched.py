"""A running job, from one look to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.ingest import (
    RunTail,
    find_parts,
    read_last,
)
from fuelline.schema.errors import NotARecordingError
from fuelline.schema.run.recording import MANIFEST_FILE, RUN_FILE
from fuelline.signals.live import LiveRun, join_snapshots

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.diagnosis.live import RunGrowth, Snapshot


class RunWatch:
    """A running job from one look to the next, over all its hosts."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._hosts: dict[Path, _WatchedHost] = {}
        self._meet_hosts()

    def look(self) -> None:
        """Take in what is new."""
        for host in self._hosts.values():
            host.look()
        self._meet_hosts()

    def look_at_all(self) -> None:
        """Take in all that was written before the first look, too."""
        while not all(host.is_counted for host in self._hosts.values()):
            self.look()

    def snapshot(self, *, workers: bool) -> Snapshot:
        """What is known by now."""
        hosts = [host for _, host in sorted(self._hosts.items())]
        return join_snapshots([host.live.snapshot(workers=workers) for host in hosts])

    def _meet_hosts(self) -> None:
        """Hosts of a run may join late; a part that has no run yet is waited for."""
        parts = find_parts(self.run_dir) or [self.run_dir]
        for part in set(parts) - self._hosts.keys():
            if len(parts) == 1 or (part / RUN_FILE).exists() or (part / MANIFEST_FILE).exists():
                self._hosts[part] = _WatchedHost(part)
        if not self._hosts:
            raise NotARecordingError(
                f"{self.run_dir} has {len(parts)} parts, and none is a recording yet. Nothing was "
                "read. Try again when the job has started on one of its hosts."
            )


class _WatchedHost:
    """One host's part of a running job: growth of its folder -> state -> snapshot."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._tail: RunTail | None = None
        growth = self._grow()
        self.live = LiveRun(growth)
        self.is_counted = growth.is_counted

    def look(self) -> None:
        """Take in what is new."""
        if self._tail is not None:
            was_live = self._tail
            growth = self._grow()
            if self._tail is was_live:
                self.live.add(growth)
            else:  # compacted since: the tables have the end that we may have missed
                self.live = LiveRun(growth)
            self.is_counted = growth.is_counted

    def _grow(self) -> RunGrowth:
        if (self.run_dir / MANIFEST_FILE).exists():
            self._tail = None
            return read_last(self.run_dir)
        self._tail = self._tail or RunTail(self.run_dir)
        return self._tail.look()
