"""Facts in, Diagnosis out."""

from fuelline.diagnose.engine import cannot_tell, diagnose

__all__ = ["cannot_tell", "diagnose"]
