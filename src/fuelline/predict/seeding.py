"""Loader settings worth a trial, from the pipeline model: few, and the most promising first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.predict.forecasting import forecast
from fuelline.predict.suggesting import find_least_workers
from fuelline.schema.forecasts import WhatIf
from fuelline.schema.readings import Missing
from fuelline.schema.trials import Setting

if TYPE_CHECKING:
    from fuelline.predict.fitting import Fit
    from fuelline.schema.readings import Signal

MOST_SEEDS = 4
"""With the job itself, in two rounds of three seconds and their start, trials take 45 s."""


def seed_settings(fit: Fit | Missing, cores: float) -> list[tuple[tuple[Setting, ...], Signal]]:
    """Settings and their predicted speedups; without a model a plain ladder up to the cores."""
    if isinstance(fit, Missing):
        ladder = sorted({1, max(1, round(cores / 2)), max(1, round(cores)), 2 * round(cores)})
        return [((Setting(knob="num_workers", value=count),), fit) for count in ladder]
    best = find_least_workers(fit)
    now, prefetch = fit.pipe.workers, fit.pipe.prefetch
    counts = [best, best + 1, best - 1, 2 * best]
    tried: list[tuple[Setting, ...]] = [
        (Setting(knob="num_workers", value=count),)
        for count in dict.fromkeys(counts)
        if count >= 0 and count != now
    ]
    deep = [Setting(knob="prefetch_factor", value=2 * prefetch)]
    if best != now:
        deep = [Setting(knob="num_workers", value=best), *deep]
    if best:
        tried.insert(min(2, len(tried)), tuple(deep))
    return [(settings, _predict(fit, settings)) for settings in tried[:MOST_SEEDS]]


def _predict(fit: Fit, settings: tuple[Setting, ...]) -> Signal:
    value = {setting.knob: int(setting.value) for setting in settings}
    question = WhatIf(
        workers=value.get("num_workers"),
        prefetch=value.get("prefetch_factor"),
    )
    return forecast(fit, question).speedup
