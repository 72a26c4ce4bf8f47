"""Signals of imported traces: Trace in, TraceSignals and what a report shows out."""

from fuelline.signals.trace.measure import measure_survey, measure_trace
from fuelline.signals.trace.scrapes import is_scrape, measure_scrapes
from fuelline.signals.trace.survey import Survey, survey_trace

__all__ = [
    "Survey",
    "is_scrape",
    "measure_scrapes",
    "measure_survey",
    "measure_trace",
    "survey_trace",
]
