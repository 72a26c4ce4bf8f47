"""Questions worth asking when nobody asks one: those that would help this job most.

Also here: one question to a recording, or none: then the questions that would help it most.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.schema.diagnosis.forecasts import ForecastReport, WhatIf
from fuelline.schema.readings import Missing, Reading
from fuelline.whatif.changes import MOST_STRETCH
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.model import find_limit, run
from fuelline.whatif.valuing import WORTH_SHOWING
from fuelline.whatif.wording import word_limit

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.forecasts import Forecast
    from fuelline.whatif.fitting import Fit
    from fuelline.whatif.model import Pipeline


GOOD_ENOUGH = 0.02
"""More workers must gain at least this much, or they are not worth their memory."""
MOST_WORKERS = 64
_MOST_SHOWN = 5


def suggest(fit: Fit, price_usd_per_hour: float | None = None) -> list[Forecast]:
    """The questions with the largest gains, best first."""
    answers = [forecast(fit, question, price_usd_per_hour) for question in _candidates(fit)]
    helpful = [
        answer
        for answer in answers
        if isinstance(answer.speedup, Reading) and answer.speedup.value >= WORTH_SHOWING
    ]
    return sorted(helpful, key=_gain, reverse=True)[:_MOST_SHOWN]


def find_least_workers(fit: Fit, pipe: Pipeline | None = None) -> int:
    """The fewest workers that do as well as any number would, within `GOOD_ENOUGH`.

    Cores bound it: beyond one that computes for each core workers only queue, or take cores from
    others. Blocked workers need no core, but storage that was never seen under another load bounds
    them, too.
    """
    pipe = pipe or fit.pipe
    computing = pipe.cpu_s / pipe.fetch_s if pipe.fetch_s else 1.0
    most = min(MOST_WORKERS, math.ceil(pipe.cores / pipe.ranks / max(computing, 0.01)))
    if pipe.storage_s > 0.2 * pipe.fetch_s and not fit.seen_scaling:
        most = min(most, int(MOST_STRETCH * max(1, fit.pipe.workers)))
    times = {
        workers: run(replace(pipe, workers=workers, surplus_s=0.0)).batch_s
        for workers in range(most + 1)
    }
    best = min(times.values())
    return next(count for count, time_s in times.items() if time_s <= best * (1 + GOOD_ENOUGH))


def _gain(answer: Forecast) -> float:
    return answer.speedup.value if isinstance(answer.speedup, Reading) else 0.0


def _candidates(fit: Fit) -> list[WhatIf]:
    pipe = fit.pipe
    single = [
        WhatIf(workers=find_least_workers(fit)),
        WhatIf(prefetch=2 * pipe.prefetch),
        WhatIf(storage="warm"),
        WhatIf(storage="nvme"),
        WhatIf(storage="packed"),
        WhatIf(transform_factor=2.0),
        WhatIf(cores=2 * pipe.cores),
        WhatIf(chip_factor=2.0),
        *(WhatIf(rarer={part: 10.0}) for part in pipe.pauses if part != "epoch start"),
    ]
    if pipe.workers and not pipe.persistent and "epoch start" in pipe.pauses:
        single.append(WhatIf(persistent=True))
    warm = forecast(fit, WhatIf(storage="warm")).speedup
    if isinstance(warm, Missing) or warm.value < WORTH_SHOWING:
        return single
    there = replace(pipe, read_s=0.0, metadata_s=0.0, elasticity=0.0)
    return [*single, WhatIf(workers=find_least_workers(fit, there), storage="warm")]


def answer(
    fit: Fit | Missing, question: WhatIf, price_usd_per_hour: float | None = None
) -> ForecastReport:
    """What the recording's limit is now, and what would be."""
    if isinstance(fit, Missing):
        return ForecastReport(
            fuelline_version=__version__,
            forecasts=[forecast(fit, question, price_usd_per_hour)],
            price_usd_per_hour=price_usd_per_hour,
        )
    limit = find_limit(fit.pipe)
    return ForecastReport(
        fuelline_version=__version__,
        samples_per_s=fit.pipe.batch_samples / fit.batch_s,
        limit=limit,
        limit_words=word_limit(limit, fit.pipe),
        fit_error=fit.misfit,
        forecasts=suggest(fit, price_usd_per_hour)
        if question.is_empty()
        else [forecast(fit, question, price_usd_per_hour)],
        price_usd_per_hour=price_usd_per_hour,
    )
