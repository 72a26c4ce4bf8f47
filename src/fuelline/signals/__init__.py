"""Pure functions: Timeline in, Reading out."""

from fuelline.signals.measure import measure
from fuelline.signals.ranks import measure_ranks

__all__ = ["measure", "measure_ranks"]
