"""Jobs as facts, for the model's tests: a page of numbers, all times in milliseconds a batch."""

from __future__ import annotations

from typing import Any

from fuelline.schema.diagnosis.demands import DemandFacts
from fuelline.schema.diagnosis.facts import ComputeFacts, CoreFacts, Facts, StorageFacts
from fuelline.schema.diagnosis.findings import BudgetPart, StepStats, Window
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.recording import LoaderFacts

UNKNOWN = Missing(reason="the test did not measure it")


def ms(value: float, error_frac: float = 0.02) -> Reading:
    """A time with its 95 % interval."""
    half = 1.96 * error_frac * value
    low, high = (value - half) / 1e3, (value + half) / 1e3
    return Reading(value=value / 1e3, unit="s", low=low, high=high, level=95)


def plain(value: float) -> Reading:
    return Reading(value=value, unit="")


def make_facts(
    *,
    batch: float,
    workers: int = 2,
    cpu: float = 20.0,
    queued: float = 0.0,
    blocked: float = 0.0,
    read: float = 1.0,
    metadata: float = 0.0,
    host: float = 2.0,
    device: float | None = 10.0,
    beside: bool = True,
    cores: float = 8.0,
    ranks: int = 1,
    pauses: dict[str, float] | None = None,
    storage: dict[str, Any] | None = None,
    loader: dict[str, Any] | None = None,
    demands: dict[str, Any] | None = None,
) -> Facts:
    """A job whose batches take so long; blocked time is `read` and `metadata` of it."""
    settings = {"num_workers": workers, "batch_size": 16, "prefetch_factor": 2} | (loader or {})
    told: dict[str, Any] = {
        "batches": 300,
        "job_batches": 300,
        "batch_seconds": ms(batch),
        "fetch_cpu_seconds": ms(cpu),
        "fetch_queued_seconds": ms(queued),
        "fetch_blocked_seconds": ms(blocked),
        "read_frac": plain(read),
        "metadata_frac": plain(metadata),
        "fetch_spread": plain(0.1),
        "read_calls": plain(16),
        "read_bytes": plain(1e6),
        "handoff_seconds": ms(0.5) if workers else UNKNOWN,
        "take_seconds": ms(1.0) if workers else UNKNOWN,
        "busy_frac": plain(min(1.0, (cpu + queued + blocked) / (batch * max(1, workers)))),
        "host_seconds": ms(host),
        "host_cpu_frac": plain(1.0),
        "loop_seconds": ms(0.2),
        "host_spread": plain(0.1),
        "device_seconds": UNKNOWN if device is None else ms(device),
        "device_mode": "beside" if beside else "within",
        "sync_frac": plain(0.04),
        "pause_seconds": {part: value / 1e3 for part, value in (pauses or {}).items()},
        "pause_counts": dict.fromkeys(pauses or {}, 10),
    }
    return Facts(
        window=Window(seconds=60, before_seconds=5, after_seconds=0),
        steps=StepStats(count=300, mean=batch / 1e3),
        budget=[BudgetPart(part="unexplained", seconds=60, share=1.0)],
        loader=LoaderFacts(**settings),
        cores=CoreFacts(allowed=plain(cores), host=plain(cores), others=plain(0.0), ranks=ranks),
        storage=StorageFacts(**(storage or {})),
        compute=ComputeFacts(batch_samples=plain(16)),
        demands=DemandFacts(**(told | (demands or {}))),
    )
