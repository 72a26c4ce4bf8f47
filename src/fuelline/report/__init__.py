"""One document tree, many renderers. Diagnosis in, words out; a running job has a screen."""

from fuelline.report.comparison import write_comparison
from fuelline.report.feeding import write_feed
from fuelline.report.forecasts import write_forecasts
from fuelline.report.live import View
from fuelline.report.live_screen import Painter, print_snapshot
from fuelline.report.markdown import render_markdown
from fuelline.report.terminal import render_terminal
from fuelline.report.tuning import write_tuning
from fuelline.report.writer import write_document

__all__ = [
    "Painter",
    "View",
    "print_snapshot",
    "render_markdown",
    "render_terminal",
    "write_comparison",
    "write_document",
    "write_feed",
    "write_forecasts",
    "write_tuning",
]
