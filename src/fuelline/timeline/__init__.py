"""The columnar core: what every importer gives and everything after it reads."""

from fuelline.timeline.timeline import Timeline

__all__ = ["Timeline"]
