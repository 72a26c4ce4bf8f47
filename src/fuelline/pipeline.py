"""The data's path, top to bottom: recording -> timeline -> signals -> diagnosis -> report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.diagnose import cannot_tell, diagnose
from fuelline.ingest import Hosts, RunTail, compact_recording, find_parts, read_last
from fuelline.report import render_terminal, write_document, write_feed
from fuelline.schema.errors import NotARecordingError
from fuelline.schema.findings import Diagnosis, RunSummary
from fuelline.schema.names import encodable
from fuelline.schema.recording import MANIFEST_FILE, RUN_FILE
from fuelline.signals import (
    align_hosts,
    answer_feed,
    compare_ranks,
    find_reason,
    find_unseen,
    measure,
    measure_devices,
    measure_feed,
    view_host,
    why_no_steps,
)
from fuelline.signals.live import LiveRun, join_snapshots
from fuelline.timeline.tiles import cut_tiles

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from fuelline.schema.facts import Culprit, SyncFacts
    from fuelline.schema.feeding import Feed, FeedAccount, FeedRequest
    from fuelline.schema.live import RunGrowth, Snapshot
    from fuelline.schema.recording import Blindspot, RunFacts
    from fuelline.signals import Comparison, HostView
    from fuelline.timeline.tiles import Tiling
    from fuelline.timeline.trainer import Trainer

MOST_NAMED = 3
"""Hosts in one line of the report."""
MOST_COMPARED = 4
"""Ranks beside a late one whose steps are looked into: what it does differently shows by then."""


def diagnose_run(run_dir: Path, price: float | None = None) -> Diagnosis:
    """Read a run, compacting it on the way if it has ended, and diagnose it."""
    recordings = Hosts(run_dir)
    hosts = align_hosts([view_host(timeline) for timeline in recordings])
    comparison = compare_ranks(hosts)
    late = {culprit.rank for culprit in comparison.facts.culprits}
    trainer = _choose_trainer(hosts, late)
    summary = _summarise(hosts[0].run, run_dir)
    blindspots = [
        *_join_blindspots(hosts),
        *recordings.lost,
        *find_unseen(hosts, trainer),
    ]
    timeline = recordings.read(_host_of(hosts, trainer) if trainer is not None else 0)
    tiling = cut_tiles(timeline, trainer) if trainer is not None else None
    if trainer is None or tiling is None:
        devices = measure_devices(timeline).devices
        return cannot_tell(summary, blindspots, why_no_steps(hosts, trainer), price, devices)
    sync = _explain_lateness(recordings, hosts, comparison)
    facts = measure(timeline, trainer, tiling, sync)
    return diagnose(facts, summary, blindspots, price)


def _join_blindspots(hosts: list[HostView]) -> list[Blindspot]:
    """What no host could see as it is; what only some could not, with their names."""
    seen_by: dict[Blindspot, list[str]] = {}
    for host in hosts:
        for spot in dict.fromkeys(host.blindspots):
            seen_by.setdefault(spot, []).append(host.run.run_id)
    return [
        spot
        if len(names) == len(hosts)
        else msgspec.structs.replace(spot, what=f"{spot.what} ({_list_some(names)})")
        for spot, names in seen_by.items()
    ]


def _list_some(names: list[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _choose_trainer(hosts: list[HostView], late: set[int]) -> Trainer | None:
    """The rank to judge: the first that makes nobody wait."""
    everyone = [trainer for host in hosts for trainer in host.trainers]
    everyone.sort(key=lambda trainer: (trainer.rank in late, trainer.rank or 0))
    return everyone[0] if everyone else None


def _host_of(hosts: list[HostView], trainer: Trainer) -> int:
    return next(number for number, host in enumerate(hosts) if trainer in host.trainers)


def _explain_lateness(
    recordings: Hosts, hosts: list[HostView], comparison: Comparison
) -> SyncFacts:
    """Give each late rank the part of a step that it is late by, and its own facts."""
    facts = comparison.facts
    explained = [_explain(recordings, hosts, comparison, culprit) for culprit in facts.culprits]
    return msgspec.structs.replace(facts, culprits=explained)


def _explain(
    recordings: Hosts, hosts: list[HostView], comparison: Comparison, culprit: Culprit
) -> Culprit:
    late = {each.rank for each in comparison.facts.culprits} - {culprit.rank}
    tilings: dict[int, Tiling] = {}
    for number, host in enumerate(hosts):
        for trainer in host.trainers:
            is_wanted = trainer.rank == culprit.rank or len(tilings) < MOST_COMPARED
            if not is_wanted or trainer.rank is None or trainer.rank in late:
                continue
            timeline = recordings.read(number)
            tiling = cut_tiles(timeline, trainer)
            if tiling is None:
                continue
            tilings[trainer.rank] = tiling.shifted(host.offset.shift_ns)
            if trainer.rank == culprit.rank:
                culprit = msgspec.structs.replace(culprit, own=measure(timeline, trainer, tiling))
    return find_reason(comparison, tilings, culprit)


def judge_feed(run_dir: Path, accounts: list[FeedAccount], request: FeedRequest) -> Feed:
    """What a driven loader can give, whom that would feed, and what keeps it from giving more."""
    diagnosis = diagnose_run(run_dir)
    emulated = request.step_seconds is not None or request.samples_per_s is not None
    rates = measure_feed(accounts, emulated=emulated)
    return answer_feed(accounts, rates, request, diagnosis)


def show_feed(feed: Feed, stream: TextIO) -> None:
    """The same for people."""
    render_terminal(write_feed(feed), stream)


def compact_run(run_dir: Path) -> None:
    """Turn the raw files of an ended run into tables; OSError if there is no room."""
    compact_recording(run_dir)


def diagnose_as_json(run_dir: Path, price: float | None = None) -> str:
    """The contract of `diagnose --json`."""
    return msgspec.json.format(msgspec.json.encode(diagnose_run(run_dir, price))).decode()


def show_report(run_dir: Path, *, price: float | None, stream: TextIO) -> None:
    """The diagnosis for people."""
    render_terminal(write_document(diagnose_run(run_dir, price)), stream)


class Watch:
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


def _summarise(run: RunFacts, run_dir: Path) -> RunSummary:
    return RunSummary(
        run_id=run.run_id,
        command=run.command,
        host=run.host,
        exit_code=run.exit_code,
        seconds=None if run.ended_ns is None else (run.ended_ns - run.started_ns) / 1e9,
        path=encodable(str(run_dir)),
    )
