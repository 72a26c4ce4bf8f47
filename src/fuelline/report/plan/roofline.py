"""Words and charts for `roofline`: a device's ceilings, and a model's operators under them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.report.document import (
    Block,
    Chart,
    Document,
    Heading,
    Item,
    Items,
    Number,
    Series,
    Statement,
    Table,
)
from fuelline.schema.readings import Reading, Signal, value_of
from fuelline.schema.units import duration, even, number, percent, rate, short, size

if TYPE_CHECKING:
    from fuelline.schema.plan.roofline import MathCeiling, ModelPoints, OperatorPoint, Roofline

MOST_SHOWN = 12
"""Operators in the table; --json has all."""
_LEFT, _RIGHT = 1 / 16, 64
"""How far a roof is drawn left and right of its ridges."""
_MOST_ROUNDS = 200
"""That the command takes."""


def write_device(roofline: Roofline, saved: str = "") -> Document:
    """The device alone."""
    known = [each for each in roofline.math if isinstance(each.flops_per_s, Reading)]
    blocks: list[Block] = [
        Statement(_device(roofline)),
        *_warn_of_device(roofline, saved),
        Heading(_rounds(roofline)),
        Items(tuple(_ceilings(roofline))),
        Heading("Products by their rows, weights from memory (GFLOP/s)"),
        _rows_table(known),
        chart_roofline(roofline),
    ]
    blocks.append(Statement(_next(saved)))
    return Document(tuple(blocks))


def _warn_of_device(roofline: Roofline, saved: str) -> list[Block]:
    """That something else ran meanwhile, how far off, and what to do; nothing if it was quiet."""
    found: list[Block] = []
    if roofline.disturbed:
        kept = " It is saved anyway." if saved else ""
        found.append(
            Statement(
                f"Measured under load: {_spread(roofline)}, so the ceilings may be too low.{kept} "
                f"Close other programs and measure again: `{_again(roofline, saved)}`",
                alarm=True,
            )
        )
    if roofline.notes:
        found.append(Items(tuple(Item(note) for note in roofline.notes)))
    return found


def _warn_of_roof(roofline: Roofline) -> list[Block]:
    """The same beside a model's operators."""
    if not roofline.disturbed:
        return []
    again = "`fuelline roofline --save NAME`, then this with --on NAME"
    words = f"The roof was measured under load: {_spread(roofline)}. On a quiet machine: {again}."
    return [Statement(words, alarm=True)]


def _spread(roofline: Roofline) -> str:
    return f"rounds of the same probe differ by {percent(roofline.spread_frac or 0.0)}"


def _again(roofline: Roofline, saved: str) -> str:
    rounds = min(3 * roofline.rounds, _MOST_ROUNDS)
    name = f" --save {saved}" if saved else ""
    return f"fuelline roofline --rounds {rounds}{name}"


def _rounds(roofline: Roofline) -> str:
    spread = roofline.spread_frac
    differ = "" if spread is None else f", which differ by {percent(spread)}"
    return f"Ceilings (95 % intervals over {roofline.rounds} rounds{differ})"


def _next(saved: str) -> str:
    if saved:
        return f"Next: fuelline plan serve CONFIG --chip {saved}"
    return (
        "Next: fuelline roofline model.py:build --input 1x3x224x224, or --save NAME to plan with "
        "this device."
    )


def _device(roofline: Roofline) -> str:
    count = roofline.threads
    threads = f", {count} thread{'s' if count > 1 else ''}" if roofline.device == "cpu" else ""
    return f"{roofline.name} ({roofline.device}{threads}, {roofline.framework})"


def _ceilings(roofline: Roofline) -> list[Item]:
    read, copy = roofline.read_bytes_per_s, roofline.copy_bytes_per_s
    items = [
        Item(f"memory: reads {_rates(read)}, copies {_rates(copy)}"),
        Item(f"launch: {_span(roofline.launch_s)} per operator"),
    ]
    for each in roofline.math:
        if not isinstance(each.flops_per_s, Reading):
            items.append(Item(f"{each.precision}: unknown, {each.flops_per_s.reason}"))
            continue
        ridge = roofline.ridge(each.precision) or 0.0
        detail = (
            f"attention: {_or_unknown(each.attention_flops_per_s)} in prefill, "
            f"{_or_unknown(each.cache_read_bytes_per_s)} in decode"
        )
        rate_words = f"{each.precision}: {_flops(each.flops_per_s)}"
        items.append(Item(f"{rate_words}, memory-bound below {number(ridge)} FLOP/byte", (detail,)))
    return items


def _rates(reading: Reading) -> str:
    low, high = reading.low or reading.value, reading.high or reading.value
    return f"{rate(reading.value)} ({rate(low)} to {rate(high)})"


def _flops(reading: Reading) -> str:
    low, high = reading.low or reading.value, reading.high or reading.value
    return f"{short(reading.value / 1e9)} GFLOP/s ({short(low / 1e9)} to {short(high / 1e9)})"


def _span(reading: Reading) -> str:
    low, high = reading.low or reading.value, reading.high or reading.value
    return f"{duration(reading.value)} ({duration(low)} to {duration(high)})"


def _or_unknown(signal: Signal) -> str:
    if not isinstance(signal, Reading):
        return "unknown"
    return _rates(signal) if signal.unit == "bytes/s" else _flops(signal)


def _rows_table(ceilings: list[MathCeiling]) -> Table:
    rows = [each.rows for each in ceilings[0].by_rows] if ceilings else []
    return Table(
        ("rows", *(each.precision for each in ceilings)),
        tuple(
            (str(count), *(_cell(each.by_rows[at].flops_per_s) for each in ceilings))
            for at, count in enumerate(rows)
        ),
    )


def _cell(reading: Reading) -> str:
    """GFLOP/s with its interval."""
    low, high = reading.low or reading.value, reading.high or reading.value
    ends = f"{even(low / 1e9, brief=True)}-{even(high / 1e9, brief=True)}"
    return f"{even(reading.value / 1e9)} ({ends})"


def chart_roofline(roofline: Roofline) -> Chart:
    """Roofs, and the measured products by rows as dots under them."""
    series: list[Series] = []
    edges = [ridge for each in roofline.math if (ridge := roofline.ridge(each.precision))]
    low, high = (min(edges) * _LEFT, max(edges) * _RIGHT) if edges else (0.1, 100.0)
    for each in roofline.math:
        peak = value_of(each.flops_per_s)
        if peak is None:
            continue
        ridge = peak / roofline.bandwidth
        series.append(
            Series(
                f"{each.precision} roof",
                ((low, low * roofline.bandwidth / 1e9), (ridge, peak / 1e9), (high, peak / 1e9)),
            )
        )
        dots = tuple(
            (2.0 * point.rows / each.element_bytes, point.flops_per_s.value / 1e9)
            for point in each.by_rows
            if low <= 2.0 * point.rows / each.element_bytes <= high
        )
        series.append(Series(f"{each.precision} products", dots, joined=False))
    return Chart(
        f"Roofline of {roofline.name}",
        "FLOPs per byte",
        "GFLOP/s",
        tuple(series),
        log_x=True,
        log_y=True,
    )


def write_points(found: ModelPoints, top: int = MOST_SHOWN) -> Document:
    """A model."""
    blocks: list[Block] = [
        Statement(_summary(found)),
        Statement(_verdict(found), _distance(found)),
        Heading("Operators, slowest first"),
        _points_table(found, top),
        *_explain_above(found, top),
        *([chart] if (chart := chart_points(found)).series else []),
        Heading("What to change"),
        Items(tuple(Item(text) for text in _advice(found))),
    ]
    blocks += _warn_of_roof(found.roofline)
    if found.notes or found.roofline.notes:
        notes = (*found.notes, *found.roofline.notes)
        blocks += [Heading("Mind"), Items(tuple(Item(f"{note}.") for note in notes))]
    return Document(tuple(blocks))


def _summary(found: ModelPoints) -> str:
    params = f", {short(found.params)} parameters" if found.params else ""
    return (
        f"{found.target}{params}, inputs {found.inputs}, on {_device(found.roofline)}: "
        f"{_span(found.total_s)} per pass, {short(found.flops)} FLOP, {size(found.moved_bytes)} "
        "moved"
    )


def _shares(found: ModelPoints) -> dict[str, float]:
    shares: dict[str, float] = {}
    for point in found.points:
        shares[point.bound] = shares.get(point.bound, 0.0) + point.share
    return shares


_WORDS = {
    "memory": "waits for memory",
    "math": "waits for math",
    "launch": "waits for the launch of small operators",
}


def _verdict(found: ModelPoints) -> str:
    shares = _shares(found)
    main = max(shares, key=lambda bound: shares[bound])
    share = percent(shares[main])
    return f"This model {_WORDS[main]}: {share} of its operators' time is {main}-bound."


def _distance(found: ModelPoints) -> str:
    roof = sum(point.roof_s for point in found.points)
    reached = roof / found.traced_s if found.traced_s else 0.0
    words = f"reach {percent(reached)} of it" if reached <= 1 else "are faster than that"
    return f"the roof allows {duration(roof)} per pass; operators {words}"


_ABOVE = "above"


def _explain_above(found: ModelPoints, top: int) -> list[Block]:
    """Nothing is faster than the hardware: why an operator may be faster than its roof."""
    above = [point for point in found.points[:top] if point.reached_share > 1]
    if not above:
        return []
    reasons = {
        "memory": "its tensors are still in a cache, and the roof is that of memory",
        "math": "its product suits the device better than those that were probed, or the clock was "
        "higher",
        "launch": "its launch takes less than that of the operators that were probed",
    }
    bounds = dict.fromkeys(point.bound for point in above)
    items = tuple(Item(f"{bound}-bound: {reasons[bound]}") for bound in bounds)
    return [Statement("above: faster than the roof as it was measured."), Items(items)]


def _points_table(found: ModelPoints, top: int) -> Table:
    return Table(
        ("operator", "shapes", "n", "time", "share", "FLOP/B", "bound", "roof", "batch"),
        tuple(_line(point, f"points/{place}") for place, point in enumerate(found.points[:top])),
        gives_way=1,
    )


_LONGEST_NAME = 18


def _line(point: OperatorPoint, path: str) -> tuple[str, ...]:
    intensity = point.intensity
    turn = point.batch_to_turn
    return (
        point.name.lstrip("_")[:_LONGEST_NAME],
        point.shapes,
        str(point.calls),
        Number(duration(point.seconds.value), point.seconds.value, f"{path}/seconds/value"),
        Number(percent(point.share), point.share, f"{path}/share"),
        "-" if intensity is None else short(intensity),
        point.bound,
        percent(point.reached_share) if point.reached_share <= 1 else _ABOVE,
        "-" if turn is None else Number(f"{math.ceil(turn):,}", turn, f"{path}/batch_to_turn"),
    )


def chart_points(found: ModelPoints) -> Chart:
    """Roofs of the precisions in use, operators as dots by what binds them."""
    used = {point.precision for point in found.points if point.flops}
    dots: dict[str, list[tuple[float, float]]] = {}
    names: dict[str, list[str]] = {}
    for point in found.points:
        if point.intensity is not None and point.seconds.value > 0:
            achieved = point.flops / point.seconds.value / 1e9
            dots.setdefault(point.bound, []).append((point.intensity, achieved))
            name = f"{point.name.lstrip('_')} {percent(point.share)}"
            names.setdefault(point.bound, []).append(name)
    places = [x for points in dots.values() for x, _ in points]
    roofs = [
        Series(f"{precision} roof", _roof(found.roofline, precision, places))
        for precision in sorted(used)
        if found.roofline.ceiling(precision)
    ]
    return Chart(
        f"{found.target} on {found.roofline.name}",
        "FLOPs per byte",
        "GFLOP/s",
        (
            *roofs,
            *(
                Series(f"{bound}-bound", tuple(each), joined=False, names=tuple(names[bound]))
                for bound, each in dots.items()
            ),
        ),
        log_x=True,
        log_y=True,
    )


def _roof(
    roofline: Roofline, precision: str, places: list[float]
) -> tuple[tuple[float, float], ...]:
    ceiling = roofline.ceiling(precision)
    peak = (value_of(ceiling.flops_per_s) if ceiling else None) or 0.0
    ridge = peak / roofline.bandwidth
    low = min([*places, ridge]) / 2
    high = max([*places, ridge]) * 2
    return (low, low * roofline.bandwidth / 1e9), (ridge, peak / 1e9), (high, peak / 1e9)


def _is_slow(point: OperatorPoint) -> bool:
    """Far below its roof, and worth a look."""
    return point.reached_share < 0.4 and point.share > 0.1 and point.bound != "launch"


def _advice(found: ModelPoints) -> list[str]:
    shares = _shares(found)
    advice = []
    turning = [
        point
        for point in found.points
        if point.bound == "memory" and point.batch_to_turn is not None
    ]
    if turning and found.batch is not None:
        main = turning[0]
        turn = main.batch_to_turn or 0.0
        advice.append(
            f"A batch of {math.ceil(turn):,} instead of {found.batch} makes "
            f"{main.name.lstrip('_')} "
            f"({percent(main.share)} of the time) math-bound: its weights are then read for more "
            "samples."
        )
    still = sum(
        point.share
        for point in found.points
        if point.bound == "memory" and point.batch_to_turn is None
    )
    if still > 0.2:
        advice.append(
            f"{percent(still)} of the time is memory-bound at every batch size: fuse these "
            "operators "
            "(torch.compile) or use fewer bytes per value."
        )
    if shares.get("launch", 0.0) > 0.1:
        advice.append(
            f"{percent(shares['launch'])} of the time goes into operators too small to be worth "
            "their launch: "
            "a larger batch, torch.compile or CUDA graphs."
        )
    slow = next((each for each in found.points if _is_slow(each)), None)
    if slow is not None:
        advice.append(
            f"{slow.name.lstrip('_')} ({slow.shapes}) reaches {percent(slow.reached_share)} of its "
            "roof: the kernel "
            "for this shape or precision is the limit, not the device."
        )
    return advice or ["Nothing stands out: the operators run near their roofs."]
