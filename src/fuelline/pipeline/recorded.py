"""A recorded run: host by host from its folder to the diagnosis of the rank that is judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from fuelline.diagnose import cannot_tell, diagnose
from fuelline.diagnose.start_up import shorten_start_up
from fuelline.fix.remedies import propose_settings
from fuelline.ingest import (
    Hosts,
    compact_recording,
    find_parts,
    read_fixes,
    read_served,
)
from fuelline.pipeline.summary import summarise
from fuelline.schema.diagnosis.trials import risk_of
from fuelline.schema.readings import Missing
from fuelline.schema.run.recording import DAMAGED
from fuelline.signals import (
    align_hosts,
    compare_ranks,
    count_ranks_beside,
    find_reason,
    find_unseen,
    measure_devices,
    sum_parts,
    view_host,
    why_no_steps,
    with_waiting,
)
from fuelline.signals.recorded.fixed import find_fixed
from fuelline.signals.recorded.measure import measure
from fuelline.signals.recorded.picture import picture_run
from fuelline.signals.recorded.start_up import measure_start_up
from fuelline.signals.recorded.stepless import find_stepless
from fuelline.signals.recorded.work import measure_work
from fuelline.store.probes import find_probe
from fuelline.timeline.device_marks import cut_by_device
from fuelline.timeline.segments import cut_segments
from fuelline.whatif import fit, tabulate, value_remedies

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.diagnosis.comparison import RunWork
    from fuelline.schema.diagnosis.facts import Culprit, Facts, SyncFacts
    from fuelline.schema.diagnosis.findings import Diagnosis, ServedFiles
    from fuelline.schema.diagnosis.fixes import FixEvent
    from fuelline.schema.diagnosis.forecasts import ForecastGrid
    from fuelline.schema.diagnosis.picture import RunPicture
    from fuelline.schema.parts import StepPart
    from fuelline.schema.run.recording import Blindspot
    from fuelline.signals import Comparison, HostView
    from fuelline.signals.recorded.fixed import FixedJob
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

MOST_NAMED = 3
"""Hosts in one line of the report."""


MOST_COMPARED = 4
"""Ranks beside a late one whose steps are looked into: what it does differently shows by then."""


def diagnose_recording(
    run_dir: Path, price: float | None, waiting: float | None = None
) -> Diagnosis:
    """Read a recorded run, compacting it on the way if it has ended, and diagnose it.

    `waiting`: the share that a loop of ours waited for batches, if it was one and has measured it.
    """
    judged = _open_judged(run_dir)
    hosts, trainer, timeline = judged.hosts, judged.trainer, judged.timeline
    summary = summarise(hosts[0].run, run_dir)
    blindspots = [
        *_join_blindspots(hosts),
        *judged.recordings.lost,
        *find_unseen(hosts, trainer),
    ]
    if trainer is None or judged.segments is None:
        devices = measure_devices(timeline).devices
        return cannot_tell(summary, blindspots, _why_no_steps(hosts, trainer), price, devices)
    facts, fixed = _measure_as_it_is(judged, run_dir, _explain_lateness(judged))
    if waiting is not None:
        facts = with_waiting(facts, waiting)
    found = diagnose(facts, summary, blindspots, price)
    started = measure_start_up(timeline, trainer, judged.segments)
    proposed = msgspec.structs.replace(
        found,
        settings=propose_settings(facts),
        fixed=fixed.effect if fixed is not None else None,
        start_up=None if started is None else shorten_start_up(started, facts.loader),
    )
    return value_remedies(proposed, fit(facts), fixed.recommended if fixed is not None else None)


def _why_no_steps(hosts: list[HostView], trainer: Trainer | None) -> str:
    """Why there is nothing to judge; what a damaged file held is not known."""
    damage = _list_damage(hosts)
    if not damage:
        return why_no_steps(hosts, trainer)
    return (
        f"{_list_some(damage)} could not be read, and the rest shows no steps, so it is not known "
        "what the job did. Copy the folder again from where it was recorded, or record again with "
        "`fuelline run`."
    )


def _list_damage(hosts: list[HostView]) -> list[str]:
    return [spot.what for host in hosts for spot in host.blindspots if spot.code == DAMAGED]


def find_fixes(run_dir: Path) -> list[FixEvent]:
    """What `run --fix` did, on all hosts."""
    return [event for part in find_parts(run_dir) or [run_dir] for event in read_fixes(part)]


def find_served(run_dir: Path) -> ServedFiles | None:
    """What a pack and the cache served, on all hosts."""
    return read_served(find_parts(run_dir) or [run_dir])


def measure_run(run_dir: Path) -> Facts | Missing:
    """The facts of the rank that a diagnosis would judge, or why there are none."""
    return measure_fixed(run_dir)[0]


def measure_fixed(run_dir: Path) -> tuple[Facts | Missing, FixedJob | None]:
    """The same, and what --fix made of the job."""
    judged = _open_judged(run_dir)
    if judged.trainer is None or judged.segments is None:
        return Missing(reason=_why_no_steps(judged.hosts, judged.trainer)), None
    return _measure_as_it_is(judged, run_dir, judged.comparison.facts)


def _measure_as_it_is(
    judged: _Judged, run_dir: Path, sync: SyncFacts
) -> tuple[Facts, FixedJob | None]:
    """The judged rank's facts; after --fix those of the job as it is now, and what changed."""
    trainer, segments = judged.trainer, judged.segments
    assert trainer is not None
    assert segments is not None
    fixed = find_fixed(judged.timeline, trainer, segments, find_fixes(run_dir))
    if fixed is None:
        return _measure(judged, trainer, segments, sync), None
    facts = fixed.adjust(_measure(judged, trainer, fixed.segments, sync))
    if fixed.recommended is None:
        return facts, fixed
    risk = risk_of(fixed.recommended.settings, facts.loader)
    arrived = msgspec.structs.replace(fixed.recommended, risk=risk)
    return facts, replace(fixed, recommended=arrived)


def _measure(judged: _Judged, trainer: Trainer, segments: StepSegments, sync: SyncFacts) -> Facts:
    """What the recording shows, and what this host was probed for."""
    beside = count_ranks_beside(judged.hosts, trainer)
    facts = measure(judged.timeline, trainer, segments, sync, beside)
    place = facts.input.place
    host = judged.hosts[_host_of(judged.hosts, trainer)].run.host
    probe = find_probe(host, place.path if place is not None else None)
    return msgspec.structs.replace(facts, probe=probe)


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


@dataclass(frozen=True)
class _Judged:
    """A run, compared across its ranks, and the rank that is judged."""

    recordings: Hosts
    hosts: list[HostView]
    comparison: Comparison
    trainer: Trainer | None
    timeline: Timeline
    """Of the trainer's host; of the first one if nobody trains."""
    segments: StepSegments | None
    """None where no two steps were seen."""


def _open_judged(run_dir: Path) -> _Judged:
    recordings = Hosts(run_dir)
    hosts = align_hosts([view_host(timeline) for timeline in recordings])
    comparison = compare_ranks(hosts)
    trainer = _choose_trainer(hosts, {culprit.rank for culprit in comparison.facts.culprits})
    timeline = recordings.read(_host_of(hosts, trainer) if trainer is not None else 0)
    segments = cut_segments(timeline, trainer) if trainer is not None else None
    if trainer is None and timeline.run.attached is None and not _list_damage(hosts):
        trainer, segments = find_stepless(timeline) or (None, None)
    return _Judged(recordings, hosts, comparison, trainer, timeline, segments)


def _choose_trainer(hosts: list[HostView], late: set[int]) -> Trainer | None:
    """The rank to judge: the first that makes nobody wait."""
    everyone = [trainer for host in hosts for trainer in host.trainers]
    everyone.sort(key=lambda trainer: (trainer.rank in late, trainer.rank or 0))
    return everyone[0] if everyone else None


def _host_of(hosts: list[HostView], trainer: Trainer) -> int:
    """Of a job without steps: the first."""
    found = (number for number, host in enumerate(hosts) if trainer in host.trainers)
    return next(found, 0)


def _explain_lateness(judged: _Judged) -> SyncFacts:
    """Give each late rank the part of a step that it is late by, and its own facts."""
    facts = judged.comparison.facts
    explained = [_explain(judged, culprit) for culprit in facts.culprits]
    return msgspec.structs.replace(facts, culprits=explained)


def _explain(judged: _Judged, culprit: Culprit) -> Culprit:
    comparison = judged.comparison
    late = {each.rank for each in comparison.facts.culprits} - {culprit.rank}
    sums: dict[int, dict[StepPart, float]] = {}
    for number, host in enumerate(judged.hosts):
        for trainer in host.trainers:
            is_wanted = trainer.rank == culprit.rank or len(sums) < MOST_COMPARED
            if not is_wanted or trainer.rank is None or trainer.rank in late:
                continue
            timeline = judged.recordings.read(number)
            segments = cut_segments(timeline, trainer)
            if segments is None:
                continue
            on_device = cut_by_device(timeline, trainer, segments)
            shifted = on_device.shifted(host.offset.shift_ns)
            sums[trainer.rank] = sum_parts(comparison, culprit, shifted)
            if trainer.rank == culprit.rank:
                culprit = msgspec.structs.replace(culprit, own=measure(timeline, trainer, segments))
    return find_reason(sums, culprit)


def segment_judged(run_dir: Path) -> tuple[StepSegments, RunWork] | None:
    """The segments of the rank that the diagnosis judges, and what a step costs it in CPU time."""
    judged = _open_judged(run_dir)
    if judged.trainer is None or judged.segments is None:
        return None
    return judged.segments, measure_work(judged.timeline, judged.trainer, judged.segments)


def look_closer(
    run_dir: Path, price: float | None
) -> tuple[RunPicture | None, ForecastGrid | Missing | None]:
    """The judged rank over time, and the pipeline model asked many questions: for a page."""
    judged = _open_judged(run_dir)
    if judged.trainer is None or judged.segments is None:
        return None, None
    facts, fixed = _measure_as_it_is(judged, run_dir, judged.comparison.facts)
    picture = picture_run(
        judged.timeline,
        judged.trainer,
        judged.segments,
        budget=facts.budget,
        fixes=find_fixes(run_dir),
        judged=judged.segments if fixed is None else fixed.segments,
    )
    return picture, tabulate(fit(facts), price)


def compact_run(run_dir: Path) -> None:
    """Turn the raw files of an ended run into tables; OSError if there is no room."""
    compact_recording(run_dir)
