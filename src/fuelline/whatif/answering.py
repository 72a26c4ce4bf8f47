"""One question to a recording, or none: then the questions that would help it most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.schema.diagnosis.forecasts import ForecastReport
from fuelline.schema.readings import Missing
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.model import find_limit
from fuelline.whatif.suggesting import suggest
from fuelline.whatif.wording import word_limit

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.forecasts import WhatIf
    from fuelline.whatif.fitting import Fit


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
