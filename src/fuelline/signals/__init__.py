"""Pure functions: Timeline in, Reading out."""

from fuelline.signals.measure import measure

__all__ = ["measure"]
