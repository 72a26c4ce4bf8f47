"""Words for a range of `plan serve`: intervals and limits in one table, money in another, a plot.

Every line is the best way at one value of the swept flag. What is plotted is what the flag
changes: the rate for a batch, money for a price, the share of the floor for a measured rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Chart, Heading, Number, Series, Statement, Table
from fuelline.report.plan.fleet import write_rates
from fuelline.report.plan.terms import (
    brief_words,
    changing,
    draw,
    limit_of,
    placed_span,
    short_limit,
    time_scale,
)
from fuelline.schema.plan.estimates import PLAN_LEVEL
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.plan.answers import ServeAnswer, ServeOption, SweepPoint

_UNITS = {"headroom": " %", "vary": " %", "attain": " %"}


def write_sweep(answer: ServeAnswer, best: ServeOption) -> list[Block]:
    """Tables and plots of a range."""
    name = flag_words(answer.swept)
    unit, factor = _times(answer)
    speeds = (
        f"tok/s ({PLAN_LEVEL} %)",
        f"{unit}/token ({PLAN_LEVEL} %)",
        f"ttft {unit} ({PLAN_LEVEL} %)",
        "limit",
    )
    # A batch is its number of sequences; what its products wait for turns at the plot's mark.
    second = "products" if answer.swept == "batch" else "seqs"
    costs = ("way", second, f"$/Mtok ({PLAN_LEVEL} %)", f"J/token ({PLAN_LEVEL} %)")
    blocks: list[Block] = [
        Heading(f"By {name}: a replica"),
        _table(answer, speeds, lambda option, path: speed_cells(option, factor, path)),
        Statement("and what it takes:"),
        _table(answer, costs, _batch_costs if answer.swept == "batch" else _costs),
    ]
    if answer.swept == "measured":
        blocks += [Statement("and how far that is from the floor:"), _floors(answer)]
    if any(point.fleet is not None for point in answer.sweep):
        return [*blocks, *write_rates(answer)]
    found = [(point.at, point.option) for point in answer.sweep if point.option is not None]
    return [*blocks, *(_charts(answer, found, best) if len(found) > 1 else ())]


def flag_words(swept: str) -> str:
    """As the user types it."""
    return f"--slo {swept}" if swept in ("ttft", "tpot") else f"--{swept}"


def _at(answer: ServeAnswer, point: SweepPoint) -> str:
    if answer.swept in ("ttft", "tpot"):
        return duration(point.at)
    return f"{point.at:,g}{_UNITS.get(answer.swept, '')}"


def _table(
    answer: ServeAnswer,
    header: tuple[str, ...],
    cells: Callable[[ServeOption, str], tuple[str, ...]],
) -> Table:
    blank = ("-",) * (len(header) - 1)
    rows = [
        (
            _at(answer, point),
            *(
                cells(point.option, f"sweep/{place}/option")
                if point.option is not None
                else (point.why_not, *blank)
            ),
        )
        for place, point in enumerate(answer.sweep)
    ]
    if len(rows) > 2 and len({row[1:] for row in rows}) == 1:
        rows = [(f"{rows[0][0]} to {rows[-1][0]}", *rows[0][1:])]  # one line stands for all
    return Table((answer.swept, *header), tuple(rows))


def _times(answer: ServeAnswer) -> tuple[str, float]:
    """The unit of both times of all lines."""
    found = [point.option for point in answer.sweep if point.option is not None]
    return time_scale(*(end for each in found for end in (each.tpot_s.high, each.ttft_s.high)))


def speed_cells(option: ServeOption, factor: float, path: str) -> tuple[str, ...]:
    """Rate, times and limit, with intervals; `path` of the option."""
    return (
        placed_span(option.rate_tokens_per_s, f"{path}/rate_tokens_per_s"),
        placed_span(option.tpot_s, f"{path}/tpot_s", factor),
        placed_span(option.ttft_s, f"{path}/ttft_s", factor),
        limit_of(option.tpot_s),
    )


def _costs(option: ServeOption, path: str) -> tuple[str, ...]:
    many = f"{option.replicas} x " if option.replicas > 1 else ""
    return (
        f"{many}{option.chip} {brief_words(option.spread)}",
        Number(f"{option.sequences:,.0f}", option.sequences, f"{path}/sequences"),
        placed_span(option.usd_per_mtoken_range, f"{path}/usd_per_mtoken_range"),
        placed_span(option.joule_per_token_range, f"{path}/joule_per_token_range"),
    )


def _batch_costs(option: ServeOption, path: str) -> tuple[str, ...]:
    way, _, *rest = _costs(option, path)
    return (way, short_limit(option.products_limit), *rest)


def _floors(answer: ServeAnswer) -> Table:
    rows = tuple(
        (
            f"{point.at:g}",
            Number(
                f"{point.floor.tokens_per_s:,.1f}",
                point.floor.tokens_per_s,
                f"sweep/{place}/floor/tokens_per_s",
            ),
            percent(point.floor.measured_share or 0.0),
        )
        for place, point in enumerate(answer.sweep)
        if point.floor is not None
    )
    return Table(("measured tok/s", "floor tok/s", "of the floor"), rows)


def _charts(
    answer: ServeAnswer, found: list[tuple[float, ServeOption]], best: ServeOption
) -> list[Block]:
    if answer.swept == "batch":
        return _batch_charts(answer, found, best)
    kept = [(point.at, point.floor) for point in answer.sweep if point.floor is not None]
    floors = [(at, floor.measured_share) for at, floor in kept]
    series = changing(
        (
            *([("share of the floor", floors)] if answer.swept == "measured" else []),
            ("tokens/s of a replica", [(at, each.rate_tokens_per_s) for at, each in found]),
            ("$ per million tokens", [(at, each.usd_per_mtoken_range) for at, each in found]),
            ("seconds per token", [(at, each.tpot_s) for at, each in found]),
        )
    )
    return [draw(answer.model, _across(answer.swept), series)]


_ACROSS = {
    "in": "prompt tokens",
    "out": "output tokens",
    "tp": "chips that share every matrix (tp)",
    "pp": "pipeline stages (pp)",
    "ep": "chips that share the experts (ep)",
    "cp": "chips that share a sequence (cp)",
    "chips": "chips at most",
    "price": "$ per chip and hour",
    "measured": "tokens/s measured",
    "kv": "bits of a cached value",
    "ttft": "allowed time to first token, s",
    "tpot": "allowed time per token, s",
}


def _across(swept: str) -> str:
    return _ACROSS.get(swept, f"--{swept}")


def _batch_charts(
    answer: ServeAnswer, found: list[tuple[float, ServeOption]], best: ServeOption
) -> list[Block]:
    rate = changing([("tokens/s", [(at, option.rate_tokens_per_s) for at, option in found])])
    pareto = tuple(
        (1 / option.tpot_s.value, option.rate_tokens_per_s.value / option.spread.chips)
        for _, option in found
    )
    return [
        Chart(
            f"{answer.model}: batch on {best.chip}",
            "sequences at once",
            "tokens/s of a replica",
            (rate,),
            log_x=True,
            log_y=True,
            x_mark=best.critical_batch,
            x_mark_label="bandwidth to math at",
        ),
        Chart(
            f"{answer.model}: what a user gets against what a chip gives",
            "tokens/s of one user",
            "tokens/s of a chip",
            (Series(f"batches of {found[0][0]:,g} to {found[-1][0]:,g}", pareto),),
            log_x=True,
            log_y=True,
        ),
    ]
