"""What a run leaves in the fleet's store: its diagnosis in one row, nothing that is private.

A command line, paths of code and what a job printed stay in the run's own folder.
"""

from __future__ import annotations

import pwd
import statistics
from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.ingest import is_trace
from fuelline.pipeline import diagnose_run, measure_run
from fuelline.pipeline.opened import read_facts
from fuelline.schema.diagnosis.fleet import START_UP, FleetCause, FleetGauge, FleetRun
from fuelline.schema.readings import Missing, Reading, value_of
from fuelline.store.runs import KnownRun, name_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Diagnosis, Remedy


def summarise_run(run_dir: Path, batch_id: str = "") -> FleetRun:
    """One row, of a run that has ended or been imported; InputError if it cannot be read."""
    run, diagnosis = read_facts(run_dir), diagnose_run(run_dir)
    seconds = diagnosis.run.seconds or (diagnosis.window.seconds if diagnosis.window else 0.0)
    facts = Missing(reason="a trace") if is_trace(run_dir) else measure_run(run_dir)
    advice, gain, gain_range = _find_advice(diagnosis)
    return FleetRun(
        run_id=run.run_id,
        job=_name_job(run.run_id, run.command),
        user=_name_owner(run_dir),
        host=run.host,
        batch_id=batch_id,
        chip=next((each.name for each in diagnosis.devices), ""),
        devices=max(1, len(diagnosis.devices), diagnosis.collectives.ranks),
        started_s=run.started_wall_ns / 1e9,
        seconds=seconds,
        exit_code=run.exit_code,
        code=diagnosis.verdict.code or "",
        title=diagnosis.title(),
        causes=list(_find_causes(diagnosis, seconds)),
        samples_per_s=diagnosis.steps.samples_per_s,
        advice=advice,
        gain=gain,
        gain_low=gain_range[0],
        gain_high=gain_range[1],
        joules=_sum_energy(diagnosis, seconds),
        rungs=_average_rungs(diagnosis),
        gauges=list(_read_gauges(diagnosis, facts)),
        fuelline_version=__version__,
    )


def _name_job(run_id: str, command: list[str]) -> str:
    """As `fuelline runs` calls it; of a folder that was named by hand, what ran."""
    from_id = KnownRun(path=None, run_id=run_id).job  # type: ignore[arg-type]
    return from_id if from_id != run_id else name_job(command) or run_id


def _name_owner(run_dir: Path) -> str:
    owner = run_dir.stat().st_uid
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:  # a container without that user
        return str(owner)


def _find_causes(diagnosis: Diagnosis, seconds: float) -> Iterator[FleetCause]:
    """Start-up, then findings by their share of the rest; no second is lost twice."""
    window = diagnosis.window
    if window is None:
        return
    before = min(window.before_seconds, seconds)
    if before > 0:
        yield FleetCause(code=START_UP, title=START_UP, lost_seconds=before)
    losses = [(each, each.lost_share) for each in diagnosis.findings if each.lost_share > 0]
    whole = max(1.0, sum(share for _, share in losses))
    for finding, share in losses:
        yield FleetCause(
            code=finding.code,
            title=finding.title,
            lost_seconds=(seconds - before) * share / whole,
        )


def _find_advice(
    diagnosis: Diagnosis,
) -> tuple[str, float | None, tuple[float | None, float | None]]:
    """The recommended setting, else the remedy that is ranked first; with its gain, if known."""
    recommended = diagnosis.recommended
    if recommended is not None and recommended.settings:
        return recommended.text(), *_read_gain(recommended.speedup)
    remedy: Remedy | None = next(
        (each for finding in diagnosis.findings[:1] for each in finding.remedies), None
    )
    if remedy is None:
        return "", None, (None, None)
    return remedy.setting, *_read_gain(remedy.gain)


def _read_gain(
    gain: Reading | Missing | None,
) -> tuple[float | None, tuple[float | None, float | None]]:
    return (
        (gain.value, (gain.low, gain.high)) if isinstance(gain, Reading) else (None, (None, None))
    )


def _sum_energy(diagnosis: Diagnosis, seconds: float) -> float | None:
    watts = None if diagnosis.energy is None else value_of(diagnosis.energy.watts)
    return None if watts is None else watts * seconds


def _average_rungs(diagnosis: Diagnosis) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    for device in diagnosis.devices:
        for rung in device.rungs:
            if isinstance(rung.share, Reading):
                shares.setdefault(rung.rung, []).append(rung.share.value)
    return {rung: statistics.fmean(each) for rung, each in shares.items()}


def _read_gauges(diagnosis: Diagnosis, facts: Facts | Missing) -> Iterator[FleetGauge]:
    """What can be compared with the same job on other hosts."""
    network = diagnosis.collectives.bytes_per_s
    if isinstance(network, Reading):
        yield FleetGauge(kind="network rate", place="", value=network.value)
    for device in diagnosis.devices:
        if isinstance(device.link_share, Reading):
            yield FleetGauge(kind="link width", place=device.device, value=device.link_share.value)
    if isinstance(facts, Missing) or facts.input.place is None:
        return
    mount, storage = facts.input.place.mount, facts.storage
    if isinstance(storage.request_seconds, Reading):
        yield FleetGauge(kind="read latency", place=mount, value=storage.request_seconds.value)
    if isinstance(storage.disk_bytes_per_s, Reading):
        yield FleetGauge(kind="read rate", place=mount, value=storage.disk_bytes_per_s.value)
