"""Tuning in, Document out: what was tried and chosen, and why; the patch is printed as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Document, Item, Items, Statement
from fuelline.schema.names import clean

if TYPE_CHECKING:
    from fuelline.schema.trials import Tuning


def write_tuning(tuning: Tuning) -> Document:
    """All but the patch."""
    blocks: list[Block] = [
        Items(tuple(Item(clean(step)) for step in tuning.steps)),
        Statement(f"{tuning.trial_seconds:.0f} s of trials."),
    ]
    if tuning.patch:
        written = "`fuelline tune --apply ...` writes this patch; `fuelline undo` takes it back:"
        blocks.append(Statement(f"Next: {written}"))
    elif tuning.chosen:
        blocks.append(Statement(f"Next: write by hand {tuning.paste}"))
    return Document(tuple(blocks))
