"""Signals of imported traces: Trace in, TraceSignals and what a report shows out."""

from fuelline.signals.traced.measure import measure_survey, measure_trace
from fuelline.signals.traced.picture import picture_trace
from fuelline.signals.traced.quality import BLINDING
from fuelline.signals.traced.scrapes import is_scrape, measure_scrapes
from fuelline.signals.traced.survey import Survey, survey_trace

__all__ = [
    "BLINDING",
    "Survey",
    "is_scrape",
    "measure_scrapes",
    "measure_survey",
    "measure_trace",
    "picture_trace",
    "survey_trace",
]
