"""The same chart as a picture: a stand-alone SVG, with no font, script or style from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from fuelline.report.renderers.charts import TICKS, TURN, Axis, make_axes
from fuelline.report.renderers.ticks import make_ticks, tick_words
from fuelline.schema.names import clean
from fuelline.schema.units import short

if TYPE_CHECKING:
    from fuelline.report.document import Chart, Series

WIDTH, HEIGHT = 760, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 24, 44, 84
_COLOURS = ("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#475569")
_PALE = 'stroke="#e5e7eb"'
_DASHED = 'stroke="#111827" stroke-dasharray="5 4"'


SIGN = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'.encode()
"""In the first line of every chart of ours, and hardly of another's."""


def draw_svg(chart: Chart) -> str:
    """The whole file."""
    across, up = make_axes(chart, 1000, 1000)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {SIGN.decode()}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{_text(chart.title)}</text>',
        *_grid(across, up),
        *_mark(chart, across),
    ]
    taken: list[tuple[float, float]] = []
    for number, series in enumerate(chart.series):
        colour = _COLOURS[number % len(_COLOURS)]
        shape = _SHAPES[number % len(_SHAPES)]
        parts += _ends(series, across, up, colour)
        parts += _series(series, across, up, colour, shape)
        parts += _names(series, across, up, taken)
        parts += _legend(series.name, number, colour, shape)
    parts += _labels(chart)
    return "\n".join([*parts, "</svg>", ""])


def _x(place: float) -> float:
    return _LEFT + place * (WIDTH - _LEFT - _RIGHT)


def _y(place: float) -> float:
    return HEIGHT - _BOTTOM - place * (HEIGHT - _TOP - _BOTTOM)


def _line(x: tuple[float, float], y: tuple[float, float], style: str) -> str:
    (x1, x2), (y1, y2) = x, y
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" {style}/>'


def _words(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_text(words)}</text>'


def _grid(across: Axis, up: Axis) -> list[str]:
    parts = []
    for tick in make_ticks(up, TICKS):
        y = _y(up.share(tick) or 0.0)
        parts.append(_line((_x(0), _x(1)), (y, y), _PALE))
        parts.append(_words(_LEFT - 8, y + 4, tick_words(tick), "end"))
    for tick in make_ticks(across, TICKS):
        x = _x(across.share(tick) or 0.0)
        parts.append(_line((x, x), (_y(0), _y(1)), _PALE))
        parts.append(_words(x, _y(0) + 18, tick_words(tick), "middle"))
    return parts


def _mark(chart: Chart, across: Axis) -> list[str]:
    place = None if chart.x_mark is None else across.share(chart.x_mark)
    if place is None:
        return []
    aside, anchor = (5, "start") if place < TURN else (-5, "end")
    return [
        _line((_x(place), _x(place)), (_y(0), _y(1)), _DASHED),
        _words(_x(place) + aside, _y(0) - 12, _mark_words(chart), anchor),
    ]


def _mark_words(chart: Chart) -> str:
    return f"{chart.x_mark_label} {short(chart.x_mark or 0.0)}"


def _ends(series: Series, across: Axis, up: Axis, colour: str) -> list[str]:
    """Intervals as thin lines."""
    style = f'stroke="{colour}" stroke-opacity="0.45"'
    return [
        _line((_x(x), _x(x)), (_y(up.share(low) or 0.0), _y(up.share(high) or 0.0)), style)
        for (at, _), (low, high) in zip(series.points, series.ends, strict=False)
        if (x := across.share(at)) is not None
    ]


def _series(series: Series, across: Axis, up: Axis, colour: str, shape: str) -> list[str]:
    places = [
        (_x(x), _y(y))
        for x, y in ((across.share(a), up.share(b)) for a, b in series.points)
        if x is not None and y is not None
    ]
    parts = [_dot(x, y, colour, shape) for x, y in places]
    if series.joined and len(places) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


_SHAPES = (
    "M-3.5,0 a3.5,3.5 0 1,0 7,0 a3.5,3.5 0 1,0 -7,0",  # a disc
    "M-4,-4 h8 v8 h-8 Z",
    "M0,-5 L5,4 H-5 Z",
    "M0,-5.5 L5.5,0 L0,5.5 L-5.5,0 Z",
    "M0,5 L5,-4 H-5 Z",
    "M-5,-1.5 h3.5 v-3.5 h3 v3.5 h3.5 v3 h-3.5 v3.5 h-3 v-3.5 h-3.5 Z",
)
"""One for each colour, for who cannot tell colours apart."""


def _dot(x: float, y: float, colour: str, shape: str) -> str:
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{shape}" fill="{colour}"/>'


_NAME_WIDTH, _NAME_HEIGHT = 130, 13
_MOST_NAMED = 8


def _names(series: Series, across: Axis, up: Axis, taken: list[tuple[float, float]]) -> list[str]:
    """Beside their points, the first ones first, where no other name stands."""
    parts = []
    for (a, b), name in zip(series.points[:_MOST_NAMED], series.names, strict=False):
        if (right := across.share(a)) is None or (high := up.share(b)) is None:
            continue
        x, y = _x(right), _y(high)
        near = (abs(x - x0) < _NAME_WIDTH and abs(y - y0) < _NAME_HEIGHT for x0, y0 in taken)
        if any(near):
            continue
        taken.append((x, y))
        aside, anchor = (9, "start") if right < TURN else (-9, "end")
        parts.append(_words(x + aside, y + 4, name, anchor))
    return parts


def _legend(name: str, number: int, colour: str, shape: str) -> list[str]:
    x = _LEFT + 200 * (number % 3)
    y = HEIGHT - 26 + 16 * (number // 3)
    return [
        _dot(x + 5, y - 4, colour, shape),
        f'<text x="{x + 15}" y="{y}">{_text(name)}</text>',
    ]


def _labels(chart: Chart) -> list[str]:
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    turned = f'transform="rotate(-90 16 {middle:.0f})"'
    place = f'x="16" y="{middle:.0f}" text-anchor="middle"'
    up = f"<text {place} {turned}>{_text(chart.y_label)}</text>"
    return [_words(_x(0.5), HEIGHT - 46, chart.x_label, "middle"), up]


def _text(words: str) -> str:
    """Names are the user's: neither markup nor characters that XML does not have."""
    return escape(clean(words))
