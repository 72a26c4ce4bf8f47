"""What would be: the pipeline model of a recording, asked."""

from fuelline.whatif.fitting import Fit, fit
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.seeding import seed_settings
from fuelline.whatif.suggesting import answer, find_least_workers, suggest
from fuelline.whatif.valuing import value_remedies

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
