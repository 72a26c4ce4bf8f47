"""A run as a file for Perfetto: the timeline with its attribution as tracks of its own."""

from fuelline.report.perfetto.recorded import draw_findings, draw_recording
from fuelline.report.perfetto.track import Instants, Spans, Values
from fuelline.report.perfetto.writer import write_tracks

__all__ = ["Instants", "Spans", "Values", "draw_findings", "draw_recording", "write_tracks"]
