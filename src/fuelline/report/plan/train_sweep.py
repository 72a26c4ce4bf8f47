"""Words for a range or a list of chips of `plan train`: tables with intervals, and a plot.

Every line is the best layout at one value. Chips have no order, so their plot is one of points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Chart, Heading, Number, Series, Statement, Table
from fuelline.report.plan.terms import changing, draw, is_wide, limit_of, placed_span, span
from fuelline.report.renderers.ticks import tick_words
from fuelline.schema.plan.estimates import PLAN_LEVEL
from fuelline.schema.units import duration, parameters, percent, rate, short

if TYPE_CHECKING:
    from fuelline.schema.plan.answers import TrainAnswer, TrainPoint


def in_money(words: str) -> str:
    """A thousand million dollars are a billion, not a giga."""
    return words.replace("G", "B")


def write_train_sweep(answer: TrainAnswer) -> list[Block]:
    """Tables and a plot."""
    name = answer.swept
    speeds = (
        name,
        f"step s ({PLAN_LEVEL} %)",
        f"MFU % ({PLAN_LEVEL} %)",
        f"days ({PLAN_LEVEL} %)",
        "limit",
    )
    costs = (name, "layout", f"$ ({PLAN_LEVEL} %)", "MWh", "useful", "input")
    places = [(f"sweep/{place}", point) for place, point in enumerate(answer.sweep)]
    blocks: list[Block] = [
        Heading(f"By --{name}"),
        Table(speeds, tuple(_speeds(name, point, at) for at, point in places)),
        Statement("and what it takes:"),
        Table(costs, tuple(_costs(name, point, at) for at, point in places)),
    ]
    series = changing(
        (
            ("days to train", [(point.at, point.days_range) for point in answer.sweep]),
            ("$ in all", [(point.at, point.usd_range) for point in answer.sweep]),
            ("input, bytes/s", [(point.at, point.loader_bytes_per_s) for point in answer.sweep]),
        )
    )
    if len(series.points) > 1:
        blocks.append(
            _side_by_side(answer) if name == "chip" else draw(answer.model, _across(name), series)
        )
    return blocks


def _side_by_side(answer: TrainAnswer) -> Chart:
    """Chips have no order, so each is its own point: sooner to the left, cheaper below."""
    priced = all(point.usd_range is not None for point in answer.sweep if point.days is not None)
    up = "$ in all" if priced else "MFU, per cent"
    series = tuple(
        Series(
            point.label,
            ((point.days, point.usd_range.value if priced and point.usd_range else _mfu(point)),),
        )
        for point in answer.sweep
        if point.days is not None
    )
    wide = [is_wide(axis) for axis in zip(*(each.points[0] for each in series), strict=True)]
    title = f"{answer.model}: chips side by side"
    return Chart(title, "days to train", up, series, log_x=wide[0], log_y=wide[1])


def _mfu(point: TrainPoint) -> float:
    return 100 * (point.mfu_frac or 0.0)


_ACROSS = {
    "chips": "chips",
    "tokens": "tokens to train on",
    "seq": "tokens per sequence",
    "batch-tokens": "tokens per step",
    "price": "$ per chip and hour",
    "checkpoint": "seconds per checkpoint",
    "mtbf": "seconds between failures of a chip",
    "jitter": "per cent by which ranks vary",
    "sites": "sites",
    "link": "GB/s between sites",
    "sample-bytes": "bytes per sample",
}


def _across(name: str) -> str:
    return _ACROSS.get(name, f"--{name}")


def _at(name: str, point: TrainPoint) -> str:
    if point.label:
        return point.label
    if name == "checkpoint":
        return duration(point.at)
    if name == "mtbf":
        return f"{point.at / 3600:,.0f} h"
    if name in ("tokens", "batch-tokens"):
        return parameters(point.at)
    if name == "jitter":
        return f"{point.at:g} %"
    return f"{point.at:,g}" if point.at < 1e5 else tick_words(point.at)


def _speeds(name: str, point: TrainPoint, path: str) -> tuple[str, ...]:
    return (
        _at(name, point),
        point.why_not
        if point.step_s is None
        else placed_span(point.step_range, f"{path}/step_range"),
        placed_span(point.mfu_range, f"{path}/mfu_range", 100),
        placed_span(point.days_range, f"{path}/days_range"),
        limit_of(point.step_range),
    )


def _costs(name: str, point: TrainPoint, path: str) -> tuple[str, ...]:
    usd, energy, useful, loader = (
        point.usd_range,
        point.energy_joule,
        point.goodput_share,
        point.loader_bytes_per_s,
    )
    return (
        _at(name, point),
        point.spread or point.why_not or "one chip",
        "-" if usd is None else Number(in_money(span(usd)), usd.value, f"{path}/usd_range/value"),
        "-" if energy is None else short(energy / 3.6e9),
        "-" if useful is None else Number(percent(useful), useful, f"{path}/goodput_share"),
        "-" if loader is None else Number(rate(loader), loader, f"{path}/loader_bytes_per_s"),
    )
