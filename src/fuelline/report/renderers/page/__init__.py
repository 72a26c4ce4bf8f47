"""The document as one HTML file: no request, no library, names as text."""

from fuelline.report.renderers.page.interactive import list_answer
from fuelline.report.renderers.page.page import SIGN, add_script, render_first_screen, render_page

__all__ = ["SIGN", "add_script", "list_answer", "render_first_screen", "render_page"]
