"""Loader settings worth a trial, from the pipeline model: few, and the most promising first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import Setting
from fuelline.schema.readings import Missing, Reading
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.suggesting import find_least_workers

if TYPE_CHECKING:
    from fuelline.schema.readings import Signal
    from fuelline.whatif.fitting import Fit

MOST_SEEDS = 4
"""With the job itself, in two rounds of three seconds and their start, trials take 45 s."""


def seed_settings(fit: Fit | Missing, cores: float) -> list[tuple[tuple[Setting, ...], Signal]]:
    """Settings and their predicted speedups; without a model a plain ladder up to the cores."""
    if isinstance(fit, Missing):
        return [(_workers(count, None), fit) for count in _ladder(max(1, round(cores)))]
    best, now = find_least_workers(fit), fit.pipe.workers
    least = _workers(best, now)
    # First what the model says, then where it may err: a little, a queue too short, by far.
    tried = [
        least,
        _workers(best + 1, now),
        (*least, Setting(knob="prefetch_factor", value=2 * fit.pipe.prefetch)) if best else (),
        _workers(2 * best, now),
        _workers(max(0, best - 1), now),
    ]
    if _may_pin(fit):
        tried.insert(1, (*least, Setting(knob="pin_memory", value=True)))
    kept = [settings for settings in dict.fromkeys(tried) if settings]
    return [(settings, _predict(fit, settings)) for settings in kept[:MOST_SEEDS]]


def _ladder(cores: int) -> list[int]:
    """Workers that compute need a core each; those that wait may be many more."""
    return sorted({max(1, cores // 2), cores, 2 * cores, min(4 * cores, max(2 * cores, 16))})


def _workers(count: int, now: int | None) -> tuple[Setting, ...]:
    """Nothing to set if there are this many already."""
    return () if count == now else (Setting(knob="num_workers", value=count),)


def _may_pin(fit: Fit) -> bool:
    """Batches are copied to a device, from memory that is not pinned."""
    loader = fit.facts.loader
    is_pinned = loader is None or loader.pin_memory is not False
    return not is_pinned and isinstance(fit.facts.demands.copy_seconds, Reading)


def _predict(fit: Fit, settings: tuple[Setting, ...]) -> Signal:
    value = {setting.knob: int(setting.value) for setting in settings}
    question = WhatIf(
        workers=value.get("num_workers"),
        prefetch=value.get("prefetch_factor"),
        pin=bool(value["pin_memory"]) if "pin_memory" in value else None,
    )
    return forecast(fit, question).speedup
