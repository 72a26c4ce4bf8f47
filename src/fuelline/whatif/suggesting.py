"""Questions worth asking when nobody asks one: those that would help this job most.

Also here: one question to a recording, or none: then the questions that would help it most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.schema.diagnosis.forecasts import ForecastReport, WhatIf
from fuelline.schema.diagnosis.trials import AS_GOOD, Recommendation
from fuelline.schema.readings import Missing, Reading
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.model import find_limit
from fuelline.whatif.recommending import ask_for, find_least_workers, recommend
from fuelline.whatif.wording import word_limit

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.forecasts import Forecast
    from fuelline.whatif.fitting import Fit


_MOST_SHOWN = 5


def suggest(
    fit: Fit, price_usd_per_hour: float | None = None, recommended: Recommendation | None = None
) -> list[Forecast]:
    """The questions with the largest gains, best first; the recommended setting is one of them."""
    if recommended is None:
        found = recommend(fit)
        recommended = found if isinstance(found, Recommendation) else Recommendation()
    questions = [ask_for(recommended), *_candidates(fit)]
    answers = [forecast(fit, each, price_usd_per_hour) for each in questions if not each.is_empty()]
    helpful = [
        answer
        for answer in answers
        if isinstance(answer.speedup, Reading) and answer.speedup.value >= 1 + AS_GOOD
    ]
    return sorted(helpful, key=_gain, reverse=True)[:_MOST_SHOWN]


def _gain(answer: Forecast) -> float:
    return answer.speedup.value if isinstance(answer.speedup, Reading) else 0.0


def _candidates(fit: Fit) -> list[WhatIf]:
    pipe = fit.pipe
    single = [
        WhatIf(storage="warm"),
        WhatIf(storage="nvme"),
        WhatIf(storage="packed"),
        WhatIf(transform_factor=2.0),
        WhatIf(cores=2 * pipe.cores),
        WhatIf(chip_factor=2.0),
        *(WhatIf(rarer={part: 10.0}) for part in pipe.pauses if part != "epoch start"),
    ]
    warm = forecast(fit, WhatIf(storage="warm")).speedup
    if isinstance(warm, Missing) or warm.value < 1 + AS_GOOD:
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
    recommended = recommend(fit)
    known = None if isinstance(recommended, Missing) else recommended
    return ForecastReport(
        fuelline_version=__version__,
        samples_per_s=fit.pipe.batch_samples / fit.batch_s,
        limit=limit,
        limit_words=word_limit(limit, fit.pipe),
        fit_error=fit.misfit,
        forecasts=suggest(fit, price_usd_per_hour, known)
        if question.is_empty()
        else [forecast(fit, question, price_usd_per_hour)],
        price_usd_per_hour=price_usd_per_hour,
        recommended=known,
    )
