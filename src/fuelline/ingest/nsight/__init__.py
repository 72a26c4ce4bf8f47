"""Nsight Systems: the SQLite export of a report, and reports where its program is installed."""

from fuelline.ingest.nsight.importer import Nsight
from fuelline.ingest.nsight.report import SUFFIXES, NsightReport, is_report

__all__ = ["SUFFIXES", "Nsight", "NsightReport", "is_report"]
