"""The one recommended loader setting of a recording: how many workers, and how they are kept.

`run`, `whatif`, `tune` and the page all show what is computed here. Of the settings that the
pipeline model predicts to finish the whole job within `AS_GOOD` of the best, it is the one with the
fewest workers. The start of workers is part of the whole job: at every epoch, or once if they stay.
Cores bound workers that compute, because the model gives them no more than there are; workers that
are blocked are bounded by memory, by what their start costs, and by what was seen to scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import AS_GOOD, Recommendation, Setting
from fuelline.schema.readings import Missing, Reading, value_of
from fuelline.schema.units import amount, count, percent, size
from fuelline.schema.worker_count import MOST_STRETCH, MOST_WORKERS, QUEUED, count_affordable
from fuelline.whatif.changes import change, is_open, waits_unseen
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.model import run
from fuelline.whatif.pipelines import risk_of_settings, write_settings

if TYPE_CHECKING:
    from fuelline.whatif.fitting import Fit
    from fuelline.whatif.model import Pipeline

DENSE = 16
"""Every number of workers up to this one is asked for, then those an eighth apart."""
_SPARE_MEMORY = 0.8
"""Of the memory that is free: the rest is for batches under way and for the job to grow."""
AHEAD = 2
"""Batches that are made ahead where none were."""
_WASTED = 2
"""Fewer workers than the job has are recommended only where it has so many times too many: a
prediction may err by a few per cent, and idle workers cost memory alone."""


@dataclass(frozen=True)
class _Choice:
    """A number of workers, and whether they stay from epoch to epoch."""

    workers: int
    persistent: bool
    prefetch: int


def recommend(fit: Fit | Missing) -> Recommendation | Missing:
    """The setting for this job, or why the model cannot say."""
    if isinstance(fit, Missing):
        return fit
    pipe = fit.pipe
    chosen = _choose(fit)
    if chosen.workers > pipe.workers and is_open(fit):
        return Recommendation(
            workers=pipe.workers,
            speedup=Reading(value=1.0, unit="x", origin="the job as it is"),
            why="whether the storage serves more requests at once was not seen, and `fuelline run "
            "--fix` or `fuelline probe` would tell",
        )
    settings = _differences(fit, chosen)
    question = WhatIf(
        workers=chosen.workers if chosen.workers != pipe.workers else None,
        prefetch=chosen.prefetch if chosen.prefetch != pipe.prefetch else None,
        persistent=True if chosen.persistent and not pipe.persistent else None,
    )
    answer = forecast(fit, question)
    return Recommendation(
        settings=settings,
        written=write_settings(settings, fit.facts.loader),
        workers=chosen.workers,
        speedup=answer.speedup
        if settings
        else Reading(value=1.0, unit="x", origin="the job as it is"),
        limit_words=answer.limit_words,
        why=_why(fit, chosen),
        cost=_cost(fit, chosen),
        risk=risk_of_settings(settings, fit.facts.loader),
    )


def ask_for(recommended: Recommendation) -> WhatIf:
    """The question whose answer the recommendation is."""
    value = {setting.knob: int(setting.value) for setting in recommended.settings}
    return WhatIf(
        workers=value.get("num_workers"),
        prefetch=value.get("prefetch_factor"),
        persistent=True if value.get("persistent_workers") else None,
    )


def find_least_workers(fit: Fit, pipe: Pipeline | None = None) -> int:
    """The fewest workers that do as well as any number would, once they run."""
    pipe = pipe or fit.pipe
    times = {
        workers: run(replace(pipe, workers=workers, surplus_s=0.0)).batch_s
        for workers in _ladder(_most_workers(fit, pipe)[0])
    }
    best = min(times.values())
    return next(count for count, time_s in times.items() if time_s <= best * (1 + AS_GOOD))


def find_most_workers(fit: Fit) -> int:
    """How many the recording allows to speak of: by cores, memory, and what was seen to scale."""
    return _most_workers(fit, fit.pipe)[0]


def _choose(fit: Fit) -> _Choice:
    pipe = fit.pipe
    most, _ = _most_workers(fit, pipe)
    now = _Choice(pipe.workers, pipe.persistent, pipe.prefetch)
    loader = fit.facts.loader
    may_stay = _has_epochs(fit) and (loader is None or not loader.framework)
    ways = [pipe.persistent] if pipe.persistent or not may_stay else [False, True]
    choices = [
        _Choice(workers, stays and workers > 0, pipe.prefetch)
        for workers in _ladder(max(most, pipe.workers))
        for stays in ways
    ]
    asked = {choice: _whole_job(fit, choice) for choice in choices}
    times = {choice: time_s for choice, time_s in asked.items() if time_s is not None}
    if not times:
        return now
    best = min(times.values())
    good = [choice for choice, time_s in times.items() if time_s <= best * (1 + AS_GOOD)]
    fewest = min(good, key=_frugality)
    as_many = [choice for choice in good if choice.workers == now.workers]
    if as_many and now.workers <= _WASTED * max(1, fewest.workers):
        return _deepened(fit, min(as_many, key=_frugality))
    return _deepened(fit, fewest)


def _frugality(choice: _Choice) -> tuple[int, bool]:
    return choice.workers, choice.persistent


def _deepened(fit: Fit, choice: _Choice) -> _Choice:
    """With a longer queue, where fetches differ so much that it runs dry.

    Not where they differ because they wait for a core: they all do so at the same time.
    """
    if _queued(fit) > QUEUED:
        return choice
    deeper = replace(choice, prefetch=2 * choice.prefetch or AHEAD)
    now_s, then_s = _whole_job(fit, choice), _whole_job(fit, deeper)
    if now_s is None or then_s is None or now_s < then_s * (1 + AS_GOOD):
        return choice
    return deeper


def _ladder(most: int) -> list[int]:
    counts = list(range(min(most, DENSE) + 1))
    while counts[-1] < most:
        counts.append(min(most, math.ceil(counts[-1] * 1.125)))
    return counts


def _whole_job(fit: Fit, choice: _Choice) -> float | None:
    """Seconds of the job for each of its batches; with the first start, where its end is known."""
    question = WhatIf(
        workers=choice.workers, persistent=choice.persistent, prefetch=choice.prefetch
    )
    changed = change(fit, question)
    if isinstance(changed, Missing):
        return None
    return run(changed.pipe).batch_s + _first_start(fit, choice.workers)


def _first_start(fit: Fit, workers: int) -> float:
    """Seconds that it adds to each batch of the job, where the job's end is known."""
    batches = fit.facts.demands.job_batches
    return workers * fit.pipe.start_s / batches if batches else 0.0


def _has_epochs(fit: Fit) -> bool:
    return "epoch start" in fit.pipe.pauses and math.isfinite(fit.pipe.epoch_batches)


def _most_workers(fit: Fit, pipe: Pipeline) -> tuple[int, str]:
    """How many may be asked for, and what they are the most for."""
    computing = pipe.cpu_s / pipe.fetch_s if pipe.fetch_s else 1.0
    cores = count_affordable(pipe.cores / pipe.ranks, computing) + 1  # the model weighs the last
    bounds = [
        (MOST_WORKERS, "one loader"),
        (cores, f"the job's {amount(pipe.cores, 'core', 'cores')}"),
    ]
    queued = _queued(fit)
    if queued > 2 * QUEUED:
        taken = f"cores that are taken: {percent(queued)} of fetch time is spent waiting for one"
        bounds.append((max(1, pipe.workers), taken))
    each = value_of(fit.facts.demands.worker_bytes)
    free = value_of(fit.facts.demands.free_bytes)
    if each and free is not None:
        room = pipe.workers + int(_SPARE_MEMORY * free / each / pipe.ranks)
        memory = f"the memory that is free ({size(free)}, {size(each)} a worker)"
        bounds.append((max(1, room), memory))
    if math.isfinite(pipe.epoch_batches):
        each_epoch = max(1, math.ceil(pipe.epoch_batches))
        bounds.append((each_epoch, f"an epoch of {amount(each_epoch, 'batch', 'batches')}"))
    if waits_unseen(fit, pipe):
        seen = MOST_STRETCH * max(1, fit.pipe.workers)
        bounds.append((seen, "what was seen; whether more at once are served as well was not"))
    return min(bounds, key=lambda bound: bound[0])


def _queued(fit: Fit) -> float:
    return value_of(fit.facts.input.core_wait_share) or 0.0


def _differences(fit: Fit, chosen: _Choice) -> list[Setting]:
    """What to write, where it is not what the job has."""
    pipe, settings = fit.pipe, []
    if chosen.workers != pipe.workers:
        settings.append(Setting(knob="num_workers", value=chosen.workers))
    if chosen.workers and chosen.prefetch != pipe.prefetch:
        settings.append(Setting(knob="prefetch_factor", value=chosen.prefetch))
    if chosen.persistent and not pipe.persistent:
        settings.append(Setting(knob="persistent_workers", value=True))
    return settings


def _why(fit: Fit, chosen: _Choice) -> str:
    pipe = fit.pipe
    more = chosen.workers > pipe.workers
    words = []
    if more:
        words.append(_of_what(fit, chosen))
    elif chosen.workers < pipe.workers:
        words.append(f"{_do(chosen.workers, 'do', 'does')} as well as {pipe.workers}")
    if chosen.prefetch != pipe.prefetch:
        words.append("fetches differ in length, and a longer queue evens that out")
    if chosen.persistent and not pipe.persistent:
        share = pipe.pauses.get("epoch start", 0.0) / fit.batch_s
        words.append(f"starting epochs takes {percent(share)} of the time now")
    if not words and pipe.workers and _queued(fit) > 2 * QUEUED:
        return (
            f"{percent(_queued(fit))} of fetch time is spent waiting for a core: more workers queue"
        )
    return "; ".join(words) or "no other number of workers would be faster"


def _of_what(fit: Fit, chosen: _Choice) -> str:
    """What bounds their number: cores for those that compute, something else for the others."""
    pipe = fit.pipe
    most, bound = _most_workers(fit, pipe)
    if chosen.workers >= most:
        return f"{_do(chosen.workers, 'are', 'is')} the most for {bound}"
    enough = f"{_do(chosen.workers, 'keep', 'keeps')} up as well as any number would"
    fetching = fit.facts.input  # the figures of the findings' evidence
    computing, queued = value_of(fetching.cpu_share), value_of(fetching.core_wait_share)
    if computing is None or queued is None:
        return enough
    if computing + queued < _MOSTLY:
        share = f"{percent(computing)} of fetch time is spent computing"
        return f"{enough}; {share}, so cores are not the limit"
    return f"{enough}; the job may use {amount(pipe.cores, 'core', 'cores')}"


_MOSTLY = 0.5
"""Of a fetch, on a core or waiting for one: below it most workers need none at any moment."""


def _cost(fit: Fit, chosen: _Choice) -> str:
    more = chosen.workers - fit.pipe.workers
    if more <= 0:
        return "workers keep their memory between epochs" if chosen.persistent else ""
    each = value_of(fit.facts.demands.worker_bytes)
    owner = "its" if more == 1 else "their"
    memory = f", up to {size(more * each)} of memory" if each else f" with {owner} own memory"
    return f"{amount(more, 'more process', 'more processes')}{memory}"


def _do(workers: int, several: str, one: str) -> str:
    """`1 worker keeps`, `2 workers keep`."""
    return f"{count(workers, 'worker')} {one if workers == 1 else several}"
