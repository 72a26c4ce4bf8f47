"""A chart as PNG, drawn with Pillow where it is installed; SVG needs nothing."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from fuelline.report.renderers.charts import TICKS, TURN, make_axes
from fuelline.report.renderers.ticks import make_ticks, tick_words
from fuelline.schema.errors import RefusedError
from fuelline.schema.units import short

if TYPE_CHECKING:
    from typing import Any

    from fuelline.report.document import Chart, Series
    from fuelline.report.renderers.charts import Axis

SCALE = 2
WIDTH, HEIGHT = 760 * SCALE, 460 * SCALE
_LEFT, _RIGHT, _TOP, _BOTTOM = 90 * SCALE, 24 * SCALE, 54 * SCALE, 90 * SCALE
_COLOURS = ("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#475569")
_DASH = 8 * SCALE


class _Canvas:
    """Pixels of one chart."""

    def __init__(self, draw: Any, font: Any, across: Axis, up: Axis) -> None:
        self.draw, self.font, self.across, self.up = draw, font, across, up

    def at(self, x: float, y: float) -> tuple[float, float]:
        """From shares of the axes to pixels."""
        return (
            _LEFT + x * (WIDTH - _LEFT - _RIGHT),
            HEIGHT - _BOTTOM - y * (HEIGHT - _TOP - _BOTTOM),
        )

    def write(self, place: tuple[float, float], words: str, anchor: str = "lm") -> None:
        """Black words."""
        self.draw.text(place, words, fill="#111827", font=self.font, anchor=anchor)


SIGN = b"tEXtSoftware\0fuelline"


def draw_png(chart: Chart) -> bytes:
    """The whole file."""
    try:
        from PIL import Image, ImageDraw, ImageFont, PngImagePlugin  # noqa: PLC0415 - optional
    except ImportError as error:
        raise RefusedError(
            "PNG needs Pillow, which is not installed. Nothing was drawn. "
            "`pip install pillow`, or give a name that ends in .svg."
        ) from error
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    font = ImageFont.load_default(12 * SCALE)
    canvas = _Canvas(ImageDraw.Draw(image), font, *make_axes(chart, 1000, 1000))
    _grid(canvas)
    _mark(canvas, chart)
    for number, series in enumerate(chart.series):
        _series(canvas, series, number)
    canvas.write((_LEFT, 14 * SCALE), chart.title)
    canvas.write(((_LEFT + WIDTH) / 2, HEIGHT - _BOTTOM + 36 * SCALE), chart.x_label, "mm")
    canvas.write((12 * SCALE, _TOP - 12 * SCALE), chart.y_label, "ls")
    about = PngImagePlugin.PngInfo()
    about.add_text("Software", "fuelline")
    drawn = io.BytesIO()
    image.save(drawn, format="PNG", pnginfo=about)
    return drawn.getvalue()


def _grid(canvas: _Canvas) -> None:
    for tick in make_ticks(canvas.up, TICKS):
        place = canvas.up.share(tick) or 0.0
        canvas.draw.line([canvas.at(0, place), canvas.at(1, place)], fill="#e5e7eb", width=SCALE)
        x, y = canvas.at(0, place)
        canvas.write((x - 8 * SCALE, y), tick_words(tick), "rm")
    for tick in make_ticks(canvas.across, TICKS):
        place = canvas.across.share(tick) or 0.0
        canvas.draw.line([canvas.at(place, 0), canvas.at(place, 1)], fill="#e5e7eb", width=SCALE)
        x, y = canvas.at(place, 0)
        canvas.write((x, y + 14 * SCALE), tick_words(tick), "mm")


def _mark(canvas: _Canvas, chart: Chart) -> None:
    place = None if chart.x_mark is None else canvas.across.share(chart.x_mark)
    if place is None:
        return
    (x, bottom), (_, top) = canvas.at(place, 0), canvas.at(place, 1)
    y = top
    while y < bottom:
        canvas.draw.line([(x, y), (x, min(y + _DASH / 2, bottom))], fill="#111827", width=SCALE)
        y += _DASH
    left = place < TURN
    beside = (x + (5 if left else -5) * SCALE, bottom - 12 * SCALE)
    words = f"{chart.x_mark_label} {short(chart.x_mark or 0.0)}"
    canvas.write(beside, words, "lm" if left else "rm")


def _series(canvas: _Canvas, series: Series, number: int) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    shares = ((canvas.across.share(x), canvas.up.share(y)) for x, y in series.points)
    places = [canvas.at(x, y) for x, y in shares if x is not None and y is not None]
    if series.joined and len(places) > 1:
        canvas.draw.line(places, fill=colour, width=2 * SCALE)
    for (at, _), (low, high) in zip(series.points, series.ends, strict=False):
        ends = [(canvas.across.share(at), canvas.up.share(end)) for end in (low, high)]
        line = [canvas.at(x, y) for x, y in ends if x is not None and y is not None]
        canvas.draw.line(line, fill=colour, width=SCALE)
    reach = 3.5 * SCALE
    for x, y in places:
        canvas.draw.ellipse([x - reach, y - reach, x + reach, y + reach], fill=colour)
    x = _LEFT + 200 * SCALE * (number % 3)
    y = HEIGHT - 34 * SCALE + 18 * SCALE * (number // 3)
    canvas.draw.rectangle([x, y - 5 * SCALE, x + 10 * SCALE, y + 5 * SCALE], fill=colour)
    canvas.write((x + 15 * SCALE, y), series.name)
