"""A run as a file for Perfetto: the timeline with its attribution as tracks of its own."""

from fuelline.report.perfetto.imported import draw_trace
from fuelline.report.perfetto.recorded import draw_findings, draw_recording
from fuelline.report.perfetto.writer import SIGN, write_tracks

__all__ = ["SIGN", "draw_findings", "draw_recording", "draw_trace", "write_tracks"]
