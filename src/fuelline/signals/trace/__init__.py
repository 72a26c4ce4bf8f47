"""Signals of imported traces: Trace in, TraceSignals and what a report shows out."""

from fuelline.signals.trace.measure import measure_trace

__all__ = ["measure_trace"]
