"""What would be: the pipeline model of a recording, asked; and plans of models on chips."""

from fuelline.predict.pipeline.answering import answer
from fuelline.predict.pipeline.fitting import Fit, fit
from fuelline.predict.pipeline.forecasting import forecast
from fuelline.predict.pipeline.seeding import seed_settings
from fuelline.predict.pipeline.suggesting import find_least_workers, suggest
from fuelline.predict.pipeline.valuing import value_remedies

__all__ = [
    "Fit",
    "answer",
    "find_least_workers",
    "fit",
    "forecast",
    "seed_settings",
    "suggest",
    "value_remedies",
]
