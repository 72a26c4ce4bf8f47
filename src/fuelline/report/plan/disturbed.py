"""Words for a roofline that was measured while something else ran: how far off, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Item, Items, Statement
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.plan.roofline import Roofline

_MOST_ROUNDS = 200
"""That the command takes."""


def warn_of_device(roofline: Roofline, saved: str) -> list[Block]:
    """Nothing for a quiet measurement."""
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


def warn_of_roof(roofline: Roofline) -> list[Block]:
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
