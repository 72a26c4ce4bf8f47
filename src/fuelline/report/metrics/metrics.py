"""A diagnosis, or a running job's snapshot, as metrics: the same names for both.

Shares are called `_ratio`, times `_seconds`, as Prometheus asks for. What was not measured has no
series; it is never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fuelline.schema.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.diagnosis.live import DeviceRow, HostLine, RankRow, Snapshot

Labels = dict[str, str]


@dataclass(frozen=True)
class Metric:
    """One series with its value now."""

    name: str
    """Without the ending that its kind may ask for."""
    value: float
    labels: Labels

    @property
    def kind(self) -> Literal["gauge", "counter", "info"]:
        """info: what it says stands in its labels, and it is 1."""
        return _COUNTERS.get(self.name) or ("info" if self.name.endswith("_info") else "gauge")

    @property
    def words(self) -> str:
        """What it is, for people."""
        return HELP[self.name]


HELP = {
    "fuelline_run_info": "A run that is known here, and its state.",
    "fuelline_verdict_info": "What keeps the run's training waiting, as it was last diagnosed.",
    "fuelline_lost_ratio": "Share of the judged time that the verdict's cause costs.",
    "fuelline_lost_seconds": "The same in seconds of this run.",
    "fuelline_lost_usd_per_hour": "The same in USD per hour and accelerator, at the price given.",
    "fuelline_recommended_speedup_ratio": "Speedup that the recommended setting gives.",
    "fuelline_steps_total": "Steps since the start.",
    "fuelline_steps_per_second": "Steps per second in the last seconds.",
    "fuelline_step_seconds": "Mean length of a step.",
    "fuelline_step_p95_seconds": "95th percentile of the length of a step.",
    "fuelline_samples_per_second": "Samples per second.",
    "fuelline_part_ratio": "Share of the time that steps spend on a part.",
    "fuelline_cores_used": "CPU cores that the job uses.",
    "fuelline_cores_allowed": "CPU cores that the job may use.",
    "fuelline_cores_others": "CPU cores that processes outside the job use.",
    "fuelline_pressure_ratio": "Share of the time that something waited for a resource (PSI).",
    "fuelline_disk_bytes_per_second": "Bytes per second of this host's disks.",
    "fuelline_network_bytes_per_second": "Bytes per second of this host's network, loopback apart.",
    "fuelline_device_rung_ratio": "Utilisation ladder of an accelerator: share of its time.",
    "fuelline_device_throttled_ratio": "Share of the time that its clock was held down.",
    "fuelline_device_watts": "Power that it draws.",
    "fuelline_device_memory_bytes": "Memory of it that is in use.",
}
"""Every metric that there is, and what it means."""
_COUNTERS: dict[str, Literal["counter"]] = {"fuelline_steps_total": "counter"}
MOST_DEVICES = 8
"""Of a run on one host: with more, the first."""
_LIVE_RUNGS = {"reported_frac": "reported utilisation", "sm_frac": "SMs active"}


def list_metrics(diagnosis: Diagnosis, program: str = "") -> list[Metric]:
    """Of a run that was diagnosed: verdict, cost, steps, parts, devices."""
    run = {"run": diagnosis.run.run_id, **({"program": program} if program else {})}
    state = "running" if diagnosis.run.exit_code is None else "ended"
    found = [
        Metric("fuelline_run_info", 1, {**run, "state": state}),
        _verdict(run, diagnosis.verdict.code, diagnosis.verdict.stage, diagnosis.verdict.limit),
        *_cost(diagnosis, run),
    ]
    steps = diagnosis.steps
    found += _given(
        run,
        ("fuelline_steps_total", float(steps.count)),
        ("fuelline_step_seconds", steps.mean),
        ("fuelline_step_p95_seconds", steps.p95),
        ("fuelline_samples_per_second", steps.samples_per_s),
    )
    found += [
        Metric("fuelline_part_ratio", part.share, {**run, "part": part.part})
        for part in diagnosis.budget
    ]
    for device in diagnosis.devices[:MOST_DEVICES]:
        found += _ladder(device, run)
    return found


def _cost(diagnosis: Diagnosis, run: Labels) -> Iterator[Metric]:
    top = next((each for each in diagnosis.findings if each.code == diagnosis.verdict.code), None)
    if top is not None:
        yield Metric("fuelline_lost_ratio", top.lost_share, run)
        yield Metric("fuelline_lost_seconds", top.lost_seconds, run)
    if top is not None and diagnosis.price_usd_per_hour is not None:
        hourly = diagnosis.price_usd_per_hour * top.lost_share
        yield Metric("fuelline_lost_usd_per_hour", hourly, run)
    speedup = None if diagnosis.recommended is None else diagnosis.recommended.speedup
    if isinstance(speedup, Reading):
        yield Metric("fuelline_recommended_speedup_ratio", speedup.value, run)


def _ladder(device: DeviceFacts, run: Labels) -> Iterator[Metric]:
    labels = {**run, "device": device.device}
    for rung, share in device.ladder.items():
        if share is not None:
            yield Metric("fuelline_device_rung_ratio", share, {**labels, "rung": rung})


def list_live(snapshot: Snapshot, run_id: str, program: str) -> list[Metric]:
    """Of a running job: each rank's pace and parts, its host and its devices."""
    run = {"run": run_id, "program": program}
    found = [Metric("fuelline_run_info", 1, {**run, "state": snapshot.state})]
    if snapshot.verdict:
        found.append(_verdict(run, snapshot.code, snapshot.stage, snapshot.limit))
        found += _given(run, ("fuelline_lost_ratio", snapshot.lost_share))
    for row in snapshot.ranks:
        found += _rank(row, {**run, "rank": str(0 if row.rank is None else row.rank)})
    found += _host(snapshot.host, run)
    for device in snapshot.devices[:MOST_DEVICES]:
        found += _device(device, {**run, "device": device.device})
    return found


def _rank(row: RankRow, labels: Labels) -> list[Metric]:
    found = _given(
        labels,
        ("fuelline_steps_total", row.steps),
        ("fuelline_steps_per_second", row.steps_per_s),
        ("fuelline_step_seconds", row.step_mean_s),
        ("fuelline_step_p95_seconds", row.step_p95_s),
        ("fuelline_samples_per_second", row.samples_per_s),
    )
    parts = [
        Metric("fuelline_part_ratio", share.frac, {**labels, "part": share.part})
        for share in row.shares
    ]
    return found + parts


def _host(host: HostLine, run: Labels) -> list[Metric]:
    found = _given(
        run,
        ("fuelline_cores_used", host.cores_used),
        ("fuelline_cores_allowed", host.cores_allowed),
        ("fuelline_cores_others", host.cores_others),
    )
    for name, label, values in (
        (
            "fuelline_pressure_ratio",
            "resource",
            {
                "cpu": host.cpu_pressure_frac,
                "io": host.io_pressure_frac,
                "memory": host.memory_pressure_frac,
            },
        ),
        (
            "fuelline_disk_bytes_per_second",
            "direction",
            {"read": host.disk_read_bytes_per_s, "write": host.disk_write_bytes_per_s},
        ),
        (
            "fuelline_network_bytes_per_second",
            "direction",
            {"in": host.net_in_bytes_per_s, "out": host.net_out_bytes_per_s},
        ),
    ):
        for word, value in values.items():
            found += _given({**run, label: word}, (name, value))
    return found


def _device(row: DeviceRow, labels: Labels) -> list[Metric]:
    found = _given(
        labels,
        ("fuelline_device_throttled_ratio", row.throttled_frac),
        ("fuelline_device_watts", row.watts),
        ("fuelline_device_memory_bytes", row.memory_bytes),
    )
    for field, rung in _LIVE_RUNGS.items():
        value: float | None = getattr(row, field)
        found += _given({**labels, "rung": rung}, ("fuelline_device_rung_ratio", value))
    return found


def list_ended(
    run_id: str, program: str, state: str, verdict: tuple[str | None, str | None, str | None] | None
) -> list[Metric]:
    """Of a run that is over, as far as a list of runs knows it; `verdict`: code, stage, limit."""
    run = {"run": run_id, "program": program}
    found = [Metric("fuelline_run_info", 1, {**run, "state": state})]
    return found if verdict is None else [*found, _verdict(run, *verdict)]


def _verdict(run: Labels, code: str | None, stage: str | None, limit: str | None) -> Metric:
    """`cannot tell` has a series as well: it is an answer."""
    told = {"code": code or "cannot tell", "stage": stage or "", "limit": limit or ""}
    return Metric("fuelline_verdict_info", 1, {**run, **told})


def _given(labels: Labels, *values: tuple[str, float | None]) -> list[Metric]:
    """Those that are known."""
    return [Metric(name, value, labels) for name, value in values if value is not None]
