"""One document tree, many renderers. Diagnosis in, words out; a running job has a screen."""

from fuelline.report.diagnosis.comparison import write_comparison
from fuelline.report.diagnosis.drawn import Drawn
from fuelline.report.diagnosis.feeding import write_feed, write_tuning
from fuelline.report.diagnosis.forecasts import write_forecasts
from fuelline.report.diagnosis.writer import write_document
from fuelline.report.document import Document
from fuelline.report.live.lines import View
from fuelline.report.live.screen import Painter, print_snapshot
from fuelline.report.renderers.markdown import render_markdown
from fuelline.report.renderers.page import render_page
from fuelline.report.renderers.terminal import render_terminal

__all__ = [
    "Document",
    "Drawn",
    "Painter",
    "View",
    "print_snapshot",
    "render_markdown",
    "render_page",
    "render_terminal",
    "write_comparison",
    "write_document",
    "write_feed",
    "write_forecasts",
    "write_tuning",
]
