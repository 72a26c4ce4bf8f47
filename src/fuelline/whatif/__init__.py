"""What would be: the pipeline model of a recording, asked."""

from fuelline.whatif.fitting import Fit, fit
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.recommending import find_least_workers, recommend
from fuelline.whatif.seeding import TrialSeed, seed_settings
from fuelline.whatif.suggesting import answer, suggest
from fuelline.whatif.tabulating import tabulate
from fuelline.whatif.valuing import restate, value_remedies

__all__ = [
    "Fit",
    "TrialSeed",
    "answer",
    "find_least_workers",
    "fit",
    "forecast",
    "recommend",
    "restate",
    "seed_settings",
    "suggest",
    "tabulate",
    "value_remedies",
]
