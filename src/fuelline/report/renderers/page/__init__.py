"""The document as one HTML file: no request, no library, names as text."""

from fuelline.report.renderers.page.page import SIGN, render_first_screen, render_page

__all__ = ["SIGN", "render_first_screen", "render_page"]
