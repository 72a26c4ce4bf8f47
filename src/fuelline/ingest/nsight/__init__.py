"""Nsight Systems: the SQLite export of a report."""

from fuelline.ingest.nsight.importer import Nsight

__all__ = ["Nsight"]
