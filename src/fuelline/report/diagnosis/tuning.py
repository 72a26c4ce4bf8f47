"""Tuning in, Document out: what was tried and chosen, and why; the patch is printed as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Document, Item, Items, Statement
from fuelline.schema.names import clean

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.trials import Tuning

_WRITTEN = "What --apply changes:"
_UNWRITTEN = "Next: `fuelline tune --apply ...` writes this patch; `fuelline undo` takes it back:"


def write_tuning(tuning: Tuning, *, is_written: bool = False) -> Document:
    """All but the patch, which stands below; `is_written` if the script gets it at once."""
    blocks: list[Block] = [
        Items(tuple(Item(clean(step)) for step in tuning.steps)),
        Statement(f"{tuning.trial_seconds:.0f} s of trials."),
    ]
    if tuning.patch:
        blocks.append(Statement(_WRITTEN if is_written else _UNWRITTEN))
    elif tuning.chosen:
        blocks.append(Statement(f"Next: write by hand {tuning.paste}"))
    return Document(tuple(blocks))
