"""What every plan's report says alike: an estimate in words, its terms as bars, the way it closes.

Estimates and advice in, blocks of a `Document` out; nothing is computed here but shares.

Also here: a way to cut a model over chips, in words.

Also here: words for a mixture of experts: what a batch touches, what it sends, who has most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from fuelline.report.document import (
    Bar,
    Bars,
    Block,
    Chart,
    Heading,
    Item,
    Items,
    Number,
    Series,
    Statement,
)
from fuelline.schema.units import duration, even, percent, short, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fuelline.schema.plan.answers import ExpertLoad
    from fuelline.schema.plan.estimates import Estimate, Parallelism, TermLimit


def between(value: Estimate, factor: float = 1.0, unit: str = "") -> str:
    """`12.3 (10.1 to 15.0) ms`."""
    middle, low, high = (even(end * factor) for end in (value.value, value.low, value.high))
    return f"{middle} ({low} to {high}) {unit}".rstrip()


def placed(value: Estimate, path: str, factor: float = 1.0) -> Number:
    """`12.3 (10.1 to 15.0)`, with its place in the JSON."""
    return Number(between(value, factor), value.value, f"{path}/value")


def time_scale(*seconds: float) -> tuple[str, float]:
    """Milliseconds, or seconds where the longest of these is beyond counting in them."""
    return ("s", 1.0) if max(seconds, default=0.0) >= _LONG_S else ("ms", 1e3)


_LONG_S = 100.0


def placed_times(value: Estimate, path: str) -> Number:
    """`12.3 (10.1 to 15.0) ms`, or seconds, with its place in the JSON."""
    unit, factor = time_scale(value.high)
    return Number(between(value, factor, unit), value.value, f"{path}/value")


def span(value: Estimate | None, factor: float = 1.0) -> str:
    """`5.2k (4.5-5.9k)` for a narrow column, ends in two digits; `-` where it is not known."""
    if value is None:
        return "-"
    middle = even(value.value * factor)
    low, high = (even(end * factor, brief=True) for end in (value.low, value.high))
    if low[-1] == high[-1] and low[-1].isalpha():
        low = low[:-1]
    return f"{middle} ({low}-{high})"


def placed_span(value: Estimate | None, path: str, factor: float = 1.0) -> str:
    """The same, with its place in the JSON."""
    words = span(value, factor)
    return words if value is None else Number(words, value.value, f"{path}/value")


_LIMITS: dict[TermLimit, str] = {
    "memory bandwidth": "memory",
    "interconnect": "links",
    "link between sites": "sites",
    "imbalance": "uneven",
    "host bus": "bus",
}


def short_limit(limit: TermLimit) -> str:
    """One word for a narrow column."""
    return _LIMITS.get(limit, limit)


def limit_of(value: Estimate | None) -> str:
    """What an estimate waits for most, in one word."""
    return "-" if value is None else short_limit(value.limit)


def changing(candidates: Iterable[tuple[str, Sequence[Place]]]) -> Series:
    """The first quantity that a range changes, else the first: what its plot should show."""
    first: Series | None = None
    for name, pairs in candidates:
        kept = [(at, value) for at, value in pairs if value is not None]
        points = tuple((at, _middle(value)) for at, value in kept)
        ends = tuple((each.low, each.high) for _, each in kept if not isinstance(each, float))
        series = Series(name, points, ends=ends)
        first = first or series
        values = [value for _, value in points]
        if values and max(values) > _CHANGED * min(values):
            return series
    return first or Series("", ())


def _middle(value: Estimate | float) -> float:
    return value if isinstance(value, float) else value.value


def draw(model: str, across: str, series: Series) -> Chart:
    """One quantity over the swept flag."""
    wide = [is_wide(axis) for axis in zip(*series.points, strict=True)]
    title = f"{model}: {series.name}"
    return Chart(title, across, series.name, (series,), log_x=wide[0], log_y=wide[1])


def is_wide(values: Iterable[float]) -> bool:
    """Whether an axis of these should be logarithmic: all above zero, and far apart."""
    found = list(values)
    return min(found) > 0 and max(found) >= _FAR * min(found)


_CHANGED = 1.001
_FAR = 4.0
Place: TypeAlias = "tuple[float, Estimate | float | None]"
"""A value of the swept flag, and what was found there."""


def write_terms(of_what: str, value: Estimate, work: str = "") -> list[Block]:
    """The longest first, each with its sign and its doubt, and what they make.

    `work` says in words what is done in their sum, where the value is work over time.
    """
    terms = sorted(value.terms, key=lambda term: -term.seconds)
    total = sum(term.seconds for term in terms)
    bars = tuple(
        Bar(
            term.name,
            term.seconds / total,
            f"{'-' if term.seconds < 0 else '+'}{_time(abs(term.seconds))} "
            f"+-{100 * term.doubt_frac:.0f} %",
        )
        for term in terms
    )
    lines = [Item(f"= {_time(total)}{f'; {work}' if work else ''}")]
    lines += [Item(f"assumed: {each}") for each in value.assumptions]
    return [Heading(f"Terms of {of_what}"), Bars(bars), Items(tuple(lines))]


def _time(seconds: float) -> str:
    """One unit only, so that a column of them can be added up by eye."""
    return duration(seconds) if seconds < 60 else f"{seconds:,.0f} s"


def write_close(advice: Iterable[str], next_words: str) -> list[Block]:
    """Advice, and the next command where there is one."""
    items = tuple(Item(text) for text in advice)
    blocks: list[Block] = [Heading("Also"), Items(items)] if items else []
    return [*blocks, Statement(next_words)] if next_words else blocks


def spread_words(spread: Parallelism) -> str:
    """`tp 4, pp 2`."""
    return spread.words


def brief_words(spread: Parallelism) -> str:
    """`tp4 pp2`, for a narrow column."""
    words = spread.words
    return words if spread.chips == spread.ep == 1 else words.replace(" ", "").replace(",", " ")


def write_experts(load: ExpertLoad, batch: str = "step") -> Item:
    """`batch`: what the tokens are of."""
    sent = (
        f"all-to-all of {size(load.all_to_all_bytes)}, {duration(load.all_to_all_s)} of a step"
        if load.all_to_all_bytes
        else "no all-to-all: every token is already on the chips of its experts"
    )
    fullest = (
        f"the fullest chip has {percent(load.imbalance_frac)} more tokens than the mean: "
        f"{duration(load.imbalance_s)} of a step"
        if load.imbalance_frac
        else "no chip has more than another: each has its part of every expert"
    )
    many = "s" if load.tokens >= 1.5 else ""
    each = short(load.tokens_per_expert)
    return Item(
        f"experts: {load.tokens:,.0f} token{many} a {batch} touch{'' if many else 'es'} "
        f"{percent(load.touched_share)} of a layer's experts, {each} "
        f"token{'' if each == '1' else 's'} each",
        (sent, fullest),
    )
