"""A chart on a terminal: a grid of characters with two axes; one sign a series, its name below.

Logarithmic axes need positive numbers; points that cannot be shown are left out, never moved to an
edge.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.report.renderers.ticks import make_ticks, tick_words
from fuelline.schema.units import short

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuelline.report.document import Chart, Series

WIDTH, HEIGHT = 62, 14
_SIGNS = ("●", "○", "▲", "■", "+", "x")
_PLAIN_SIGNS = ("*", "o", "^", "#", "+", "x")
_MARGIN = 10
_STEPS = 200
_UP_TICKS, _ACROSS_TICKS = 6, 8
TICKS = 8
"""Round numbers on an axis of a picture, at most."""
TURN = 0.6
"""Further right than this share of the width, a mark's words stand on its left."""


class Axis:
    """From numbers to cells."""

    def __init__(self, values: Iterable[float], cells: int, *, log: bool) -> None:
        self.log = log
        fit = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low, high = (min(fit), max(fit)) if fit else (1.0, 2.0)
        if low == high:
            low, high = (low / 1.1, high * 1.1) if low > 0 else (low - 1, high + 1)
        self.low, self.high, self.cells = low, high, cells
        self.whole = bool(fit) and all(value == int(value) for value in fit)

    def share(self, value: float) -> float | None:
        """Place between the ends, 0 to 1; None outside or not drawable."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        if self.log:
            place = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        return place if -1e-9 <= place <= 1 + 1e-9 else None

    def cell(self, value: float) -> int | None:
        """Its cell."""
        place = self.share(value)
        return (
            None if place is None else min(max(round(place * (self.cells - 1)), 0), self.cells - 1)
        )

    def at(self, place: float) -> float:
        """The number at a place."""
        if self.log:
            return float(self.low * (self.high / self.low) ** place)
        return self.low + (self.high - self.low) * place


def make_axes(
    chart: Chart, width: int, height: int, *, with_ends: bool = True
) -> tuple[Axis, Axis]:
    """Both axes over all points, and over their intervals where these are drawn."""
    ends = [end for series in chart.series if with_ends for pair in series.ends for end in pair]
    points = [point for series in chart.series for point in series.points]
    xs = [x for x, _ in points] + ([chart.x_mark] if chart.x_mark is not None else [])
    return (
        Axis(xs, width, log=chart.log_x),
        Axis([y for _, y in points] + ends, height, log=chart.log_y),
    )


def draw_chart(chart: Chart, *, plain: bool) -> list[str]:
    """Lines."""
    horizontal, vertical = make_axes(chart, WIDTH, HEIGHT, with_ends=False)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    mark = None if chart.x_mark is None else horizontal.cell(chart.x_mark)
    if mark is not None:
        for row in grid:
            row[mark] = ":"
    signs = _PLAIN_SIGNS if plain else _SIGNS
    for number, series in enumerate(chart.series):
        sign = signs[number % len(signs)]
        _plot(grid, series, (horizontal, vertical), sign, "." if plain else "·")
    return [f"  {chart.title}", *_framed(grid, vertical), *_foot(chart, horizontal, signs)]


def _plot(
    grid: list[list[str]], series: Series, axes: tuple[Axis, Axis], sign: str, joint: str
) -> None:
    across, up = axes
    if series.joined:
        for before, after in zip(series.points, series.points[1:], strict=False):
            _join(grid, (before, after), axes, joint)
    for x, y in series.points:
        _put(grid, across.cell(x), up.cell(y), sign)


def _join(
    grid: list[list[str]],
    ends: tuple[tuple[float, float], tuple[float, float]],
    axes: tuple[Axis, Axis],
    sign: str,
) -> None:
    across, up = axes
    (x0, y0), (x1, y1) = ((across.share(x), up.share(y)) for x, y in ends)
    if x0 is None or y0 is None or x1 is None or y1 is None:
        return
    for step in range(_STEPS + 1):
        part = step / _STEPS
        column = round((x0 + (x1 - x0) * part) * (across.cells - 1))
        row = round((y0 + (y1 - y0) * part) * (up.cells - 1))
        if grid[HEIGHT - 1 - row][column] in (" ", ":"):
            grid[HEIGHT - 1 - row][column] = sign


def _put(grid: list[list[str]], column: int | None, row: int | None, sign: str) -> None:
    if column is not None and row is not None:
        grid[HEIGHT - 1 - row][column] = sign


def _framed(grid: list[list[str]], vertical: Axis) -> list[str]:
    labels = {
        HEIGHT - 1 - row: tick_words(tick)
        for tick in make_ticks(vertical, _UP_TICKS)
        if (row := vertical.cell(tick)) is not None
    }
    return [
        f"{labels.get(number, ''):>{_MARGIN}} |{''.join(row)}".rstrip()
        for number, row in enumerate(grid)
    ]


def _ruler(horizontal: Axis) -> str:
    """Labels under their columns; one that would touch the last is left out."""
    line = ""
    for tick in make_ticks(horizontal, _ACROSS_TICKS):
        cell, label = horizontal.cell(tick), tick_words(tick)
        start = min(max((cell or 0) - len(label) // 2, 0), WIDTH - len(label))
        if not line or start > len(line) + 1:
            line = line.ljust(start) + label
    return line


def _foot(chart: Chart, horizontal: Axis, signs: tuple[str, ...]) -> list[str]:
    names = "   ".join(
        f"{signs[number % len(signs)]} {series.name}" for number, series in enumerate(chart.series)
    )
    lines = [
        " " * (_MARGIN + 1) + "+" + "-" * WIDTH,
        " " * (_MARGIN + 2) + _ruler(horizontal),
        " " * (_MARGIN + 2) + f"{chart.x_label}  |  up: {chart.y_label}",
        " " * (_MARGIN + 2) + names,
    ]
    if chart.x_mark is not None:
        lines.append(" " * (_MARGIN + 2) + f": {chart.x_mark_label} {short(chart.x_mark)}")
    return lines
