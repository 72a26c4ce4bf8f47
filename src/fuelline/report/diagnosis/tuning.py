"""Tuning in, Document out: what was tried and chosen, and why; the patch is printed unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Document, Item, Items, Statement
from fuelline.schema.names import clean

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.trials import Tuning

_WRITTEN = "What --apply changes:"
_UNWRITTEN = "Next: `fuelline tune --apply ...` applies this patch; `fuelline undo` reverts it:"


def write_tuning(tuning: Tuning, *, is_written: bool = False) -> Document:
    """All but the patch, which follows below; `is_written` if it is applied at once."""
    blocks: list[Block] = [
        Items(tuple(Item(clean(step)) for step in tuning.steps)),
        Statement(f"{tuning.trial_seconds:.0f} s of trials."),
    ]
    if tuning.patch:
        blocks.append(Statement(_WRITTEN if is_written else _UNWRITTEN))
    elif tuning.chosen:
        blocks.append(Statement(f"Next: change the script by hand: {tuning.paste}"))
    return Document(tuple(blocks))
