"""Pure functions: Timeline in, Reading out."""

from fuelline.signals.devices import measure_devices
from fuelline.signals.measure import measure
from fuelline.signals.ranks import measure_ranks

__all__ = ["measure", "measure_devices", "measure_ranks"]
