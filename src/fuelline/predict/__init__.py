"""What would be: the pipeline model of a recording, asked; and plans of models on chips."""

from fuelline.predict.answering import answer
from fuelline.predict.fitting import Fit, fit
from fuelline.predict.forecasting import forecast
from fuelline.predict.seeding import seed_settings
from fuelline.predict.suggesting import find_least_workers, suggest
from fuelline.predict.valuing import value_remedies

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
