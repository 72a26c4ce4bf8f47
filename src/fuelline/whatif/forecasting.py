"""A question in, a Forecast out: the speedup with its interval, and which limit comes next.

The interval comes from the errors of the measured numbers (each is moved by its standard error, and
the effects add up in squares), from what the model had to solve for, and from what no recording can
show: more busy cores share caches and memory. Laws bound it from above. A number that was never
measured gives no answer.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from fuelline.schema.diagnosis.forecasts import Bound, Forecast, WhatIf
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.student import DEVIATIONS, Level
from fuelline.whatif.changes import (
    asks_somebody,
    at_once,
    change,
    least_favourable,
    with_queues,
)
from fuelline.whatif.chip_ratio import compare_chips
from fuelline.whatif.fitting import RIVALS_ERROR, relative_error
from fuelline.whatif.model import Limit, Pipeline, find_bounds, find_limit, run
from fuelline.whatif.wording import word_limit, word_question

if TYPE_CHECKING:
    from fuelline.schema.readings import Signal
    from fuelline.whatif.fitting import Fit

RUN_ERROR = 0.07
"""The same job differs by this much from run to run: 14 settings that should change nothing gave
0.87 to 1.27 times the speed on two shared cores, a standard deviation of 9 %, of which the
measurement of each is a part (bench/RESULTS.md, predicted against achieved gain)."""
CORE_ERROR = 0.08
"""Relative slowdown when all cores are busy that were idle: two workers on two cores give 1.89
times one (2,000 JPEGs, Pillow)."""
LEVEL: Level = 90
"""Of the intervals, in percent: how many of the gains that remedies achieve lie inside
(bench/predict_gain.py)."""
_BEYOND = 0.15
"""Standard error of the elasticity beyond the number of requests that was recorded: four that do
not wait for each other say little of eight."""
_CERTAIN_MISFIT = 0.3
"""Share of the model's misfit that counts as error: it is solved for at the recorded point."""


def forecast(
    fit: Fit | Missing, question: WhatIf, price_usd_per_hour: float | None = None
) -> Forecast:
    """The answer, or the reason why there is none."""
    words = word_question(question)
    if isinstance(fit, Missing):
        return Forecast(question=question, words=words, speedup=fit, samples_per_s=fit)
    changed = change(fit, question)
    if isinstance(changed, Missing):
        return Forecast(question=question, words=words, speedup=changed, samples_per_s=changed)
    pipe = changed.pipe
    value = _speedup(fit.pipe, pipe)
    half = DEVIATIONS[LEVEL] * _error(fit, pipe, question)
    low = min(value, _at_least(fit, question)) * math.exp(-half)
    high = value * math.exp(half)
    high = max(value, min(high, _ceiling(fit, pipe, question)))
    if question.is_empty():
        low = high = value
    speedup = Reading(
        value=value, unit="x", low=low, high=high, level=LEVEL, origin="pipeline model"
    )
    limit = find_limit(pipe)
    return Forecast(
        question=question,
        words=words,
        speedup=speedup,
        samples_per_s=_rate(fit, speedup, pipe.ranks),
        limit=limit,
        limit_words=word_limit(limit, pipe),
        bounds=_bounds(fit.pipe, pipe),
        assumptions=changed.assumptions,
        worth_usd_per_day=worth(value, price_usd_per_hour),
    )


def worth(speedup: float, price_usd_per_hour: float | None) -> float | None:
    """What a day of one accelerator is worth less, if the same work is done sooner."""
    if price_usd_per_hour is None:
        return None
    return 24 * price_usd_per_hour * (1 - 1 / speedup)


def _speedup(old: Pipeline, new: Pipeline) -> float:
    """Samples per second of all ranks together, over those of the recording."""
    samples = new.batch_samples * new.ranks / (old.batch_samples * old.ranks)
    return samples * run(old).batch_s / run(new).batch_s


def _rate(fit: Fit, speedup: Reading, ranks: int) -> Signal:
    now = fit.pipe.batch_samples / fit.batch_s * fit.pipe.ranks / ranks
    return Reading(
        value=now * speedup.value,
        unit="samples/s",
        low=now * (speedup.low or 0.0),
        high=now * (speedup.high or 0.0),
        level=speedup.level,
        origin="pipeline model",
    )


def _error(fit: Fit, new: Pipeline, question: WhatIf) -> float:
    """Relative standard error of the speedup."""
    parts = [_run_error(fit), _CERTAIN_MISFIT * fit.misfit, *map(_disturbance, (fit.pipe, new))]
    middle = math.log(_speedup(fit.pipe, new))
    for name, error in fit.errors.items():
        moved = change(_moved(fit, name, 1 + error), question)
        if not isinstance(moved, Missing):
            old = _moved(fit, name, 1 + error).pipe
            parts.append(math.log(_speedup(old, moved.pipe)) - middle)
    parts.append(_fixed_error(fit, question, middle))
    queued = with_queues(fit, _BEYOND, _BEYOND if asks_somebody(fit, fit.pipe) else 0.0)
    moved = change(queued, question)
    if not isinstance(moved, Missing):
        parts.append(math.log(_speedup(queued.pipe, moved.pipe)) - middle)
    parts.append(_chip_error(fit, question, middle))
    # Anywhere between 0 and the most: a uniform distribution.
    crowding = math.log(at_once(new) / at_once(fit.pipe))
    parts.append(fit.most_growth / math.sqrt(12) * crowding * _prepared(new))
    more_cores = run(new).cores_used - run(fit.pipe).cores_used
    parts.append(CORE_ERROR * max(0.0, more_cores) / new.cores * _prepared(new))
    return math.sqrt(sum(part**2 for part in parts))


def _run_error(fit: Fit) -> float:
    """What two runs differ by that should not differ.

    More than elsewhere on a machine whose speed was seen to change from stretch to stretch of the
    recording: the next run meets other such stretches.
    """
    return math.hypot(RUN_ERROR, math.sqrt(2) * relative_error(fit.facts.demands.batch_seconds))


def _disturbance(pipe: Pipeline) -> float:
    """What rivals change from run to run: they come and go, and their number is known to half.

    The workers' share of the cores is the model's; the trainer needs a core of them as well.
    """
    more = replace(pipe, rivals=pipe.rivals * (1 + RIVALS_ERROR))
    longer_s = pipe.host_cpu_s * (_crowding(more) / _crowding(pipe) - 1)
    crowded = replace(more, host_s=pipe.host_s + longer_s)
    return math.log(run(crowded).batch_s / run(pipe).batch_s)


def _crowding(pipe: Pipeline) -> float:
    """How many times as long a thread of the job waits and computes as it would alone."""
    return max(1.0, (run(pipe).cores_used + pipe.rivals) / pipe.cores)


def _fixed_error(fit: Fit, question: WhatIf, middle: float) -> float:
    """What it would change if the cost that is fixed per batch were more, or less."""
    if question.batch_size is None or fit.fixed_share is None:
        return 0.0
    shares = (fit.fixed_share - fit.fixed_error, fit.fixed_share + fit.fixed_error)
    moved = [change(replace(fit, fixed_share=min(1.0, share)), question) for share in shares]
    return max(
        abs(math.log(_speedup(fit.pipe, each.pipe)) - middle)
        for each in moved
        if not isinstance(each, Missing)
    )


def _ceiling(fit: Fit, new: Pipeline, question: WhatIf) -> float:
    """What the tightest law allows at most, with the error of the demands that it rests on.

    How many rivals there are, how reads queue, how fetches vary: all that may be wrong by half and
    more, and no law asks for it. So an interval never reaches far beyond "at most".
    """
    most = _lawful(fit, new)
    if not math.isfinite(most):
        return most
    parts = [_run_error(fit), _chip_error(fit, question, math.log(_speedup(fit.pipe, new)))]
    for name, error in fit.errors.items():
        moved = change(_moved(fit, name, 1 + error), question)
        if not isinstance(moved, Missing):
            parts.append(math.log(_lawful(fit, moved.pipe) / most))
    return most * math.exp(DEVIATIONS[LEVEL] * math.sqrt(sum(part**2 for part in parts)))


def _lawful(fit: Fit, new: Pipeline) -> float:
    """The speedup over the recorded time that the tightest law leaves."""
    samples = new.batch_samples * new.ranks / (fit.pipe.batch_samples * fit.pipe.ranks)
    least_s = max(find_bounds(new).values())
    return samples * fit.batch_s / least_s if least_s > 0 else math.inf


def _chip_error(fit: Fit, question: WhatIf, middle: float) -> float:
    """What it would change if the other chip were faster by its ratio's error."""
    if question.chip is None:
        return 0.0
    ratio = compare_chips(question.chip, fit.facts.devices)
    if isinstance(ratio, Missing):
        return 0.0
    faster = structs.replace(question, chip=None, chip_factor=ratio.factor * math.exp(ratio.error))
    moved = change(fit, faster)
    return 0.0 if isinstance(moved, Missing) else math.log(_speedup(fit.pipe, moved.pipe)) - middle


def _moved(fit: Fit, name: str, factor: float) -> Fit:
    value = getattr(fit.pipe, name)
    return replace(fit, pipe=replace(fit.pipe, **{name: value * factor}))


def _at_least(fit: Fit, question: WhatIf) -> float:
    """The speedup if what was not seen is as it helps least."""
    least = least_favourable(fit, question)
    changed = change(least, question)
    return math.inf if isinstance(changed, Missing) else _speedup(least.pipe, changed.pipe)


def _prepared(pipe: Pipeline) -> float:
    """How much the time of a batch depends on the workers' cores, 0 to 1."""
    flow = run(pipe)
    return min(1.0, flow.input_s / flow.batch_s) if pipe.workers else 0.5


def _bounds(old: Pipeline, new: Pipeline) -> list[Bound]:
    now_s = run(old).batch_s
    samples = new.batch_samples * new.ranks / (old.batch_samples * old.ranks)
    laws: dict[Limit, float] = run(new).bounds
    known = [(name, samples * now_s / least_s) for name, least_s in laws.items() if least_s > 0]
    known = [(name, bound) for name, bound in known if name != "pauses"]
    return [Bound(limit=name, speedup=bound) for name, bound in sorted(known, key=lambda b: b[1])]
