"""Loader settings worth a trial: the recommended one first, then a spread around it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import Setting
from fuelline.schema.readings import Missing, Reading
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.recommending import find_most_workers, recommend

if TYPE_CHECKING:
    from fuelline.schema.readings import Signal
    from fuelline.whatif.fitting import Fit

MOST_SEEDS = 4
"""With the job itself, in two rounds of three seconds and their start, trials take 45 s."""
_APART = 1.3
"""Numbers of workers closer than this to the recommended one do what it does."""
_LAWS = ("cores", "workers")
"""Bounds that rest on clocks of the job's own: busy neighbours do not loosen them."""


@dataclass(frozen=True)
class TrialSeed:
    """Settings, the gain that is predicted for them, and the most that laws allow."""

    settings: tuple[Setting, ...]
    predicted: Signal
    most: float = math.inf


def seed_settings(fit: Fit | Missing, cores: float, now: int | None = None) -> list[TrialSeed]:
    """The most promising first; without a model a plain ladder up to the cores and beyond.

    `now` is the job's own number of workers, for the latter.
    """
    if isinstance(fit, Missing):
        counts = [count for count in _ladder(max(1, round(cores))) if count != now]
        return [TrialSeed(_workers(count, now), fit) for count in counts]
    recommended = recommend(fit)
    assert not isinstance(recommended, Missing)
    first = tuple(recommended.settings)
    kept = tuple(each for each in first if each.knob == "persistent_workers")
    tried = [
        first,
        *(
            (*_workers(count, fit.pipe.workers), *kept)
            for count in _spread(fit, recommended.workers)
        ),
    ]
    if _may_pin(fit):
        tried.insert(1, (*first, Setting(knob="pin_memory", value=True)))
    chosen = [settings for settings in dict.fromkeys(tried) if settings]
    return [_predict(fit, settings) for settings in chosen[:MOST_SEEDS]]


def _spread(fit: Fit, recommended: int) -> list[int]:
    """1, 2, 4, 8 ... below and above the recommended number in turn, the nearest first.

    One above it is always tried; more only as far as cores, memory and epochs allow.
    """
    most = max(find_most_workers(fit), recommended)
    powers = [1 << bit for bit in range(most.bit_length() + 2)]
    below = [count for count in reversed(powers) if count * _APART <= recommended]
    above = [count for count in powers if count >= _APART * recommended]
    allowed = [*above[:1], *(count for count in above[1:] if count <= most)]
    pairs = itertools.zip_longest(below, allowed)
    return [count for pair in pairs for count in pair if count is not None]


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


def _predict(fit: Fit, settings: tuple[Setting, ...]) -> TrialSeed:
    value = {setting.knob: int(setting.value) for setting in settings}
    question = WhatIf(
        workers=value.get("num_workers"),
        prefetch=value.get("prefetch_factor"),
        persistent=True if value.get("persistent_workers") else None,
        pin=bool(value["pin_memory"]) if "pin_memory" in value else None,
    )
    answer = forecast(fit, question)
    laws = [bound.speedup for bound in answer.bounds if bound.limit in _LAWS]
    return TrialSeed(settings, answer.speedup, min(laws, default=math.inf))
