"""Pure functions: Timeline in, Reading out."""

from fuelline.signals.devices import measure_devices
from fuelline.signals.measure import measure

__all__ = ["measure", "measure_devices"]
