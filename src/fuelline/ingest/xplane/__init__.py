"""XPlane: what the profilers of TensorFlow and JAX write, read without either."""

from fuelline.ingest.xplane.importer import XPlane

__all__ = ["XPlane"]
