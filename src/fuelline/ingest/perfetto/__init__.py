"""Perfetto's protocol buffers (`.pftrace`), read without its packages."""

from fuelline.ingest.perfetto.importer import Perfetto

__all__ = ["Perfetto"]
