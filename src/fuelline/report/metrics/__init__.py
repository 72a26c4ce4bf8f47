"""Figures of a run for other people's monitoring: names, units and labels that do not change.

A label never holds a path, a command or a sentence, and a rank has at most 40 series.
"""

from fuelline.report.metrics.dashboard import read_dashboard
from fuelline.report.metrics.exposition import render_metrics
from fuelline.report.metrics.metrics import Metric, list_ended, list_live, list_metrics

__all__ = [
    "Metric",
    "list_ended",
    "list_live",
    "list_metrics",
    "read_dashboard",
    "render_metrics",
]
