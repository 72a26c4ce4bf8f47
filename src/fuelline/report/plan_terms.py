"""What every plan's report says alike: an estimate in words, its terms as bars, the way it closes.

Estimates and advice in, blocks of a `Document` out; nothing is computed here but shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Bar, Bars, Block, Heading, Item, Items, Statement
from fuelline.schema.units import duration, short

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuelline.schema.plans import Estimate


def between(value: Estimate, factor: float = 1.0, unit: str = "") -> str:
    """`12.3 (10.1 to 15.0) ms`."""
    middle, low, high = (short(end * factor) for end in (value.value, value.low, value.high))
    return f"{middle} ({low} to {high}) {unit}".rstrip()


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
