"""One document tree, many renderers. Diagnosis in, words out."""

from fuelline.report.terminal import render_terminal
from fuelline.report.writer import write_document

__all__ = ["render_terminal", "write_document"]
