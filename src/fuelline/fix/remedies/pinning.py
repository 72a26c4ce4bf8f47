"""Copies to the device from memory that is not pinned.

Not applied while the job runs: the thread that pins takes host time, and whether that pays shows
only on the device at hand; `fuelline tune` tries it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import value_of

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

MUCH = 0.5
"""Of the time in copies."""


def propose(facts: Facts) -> Remedy | None:
    """Fires where most copies come from pageable memory."""
    loader, pageable = facts.loader, value_of(facts.transfer.pageable_share)
    if loader is None or loader.pin_memory or pageable is None or pageable < MUCH:
        return None
    return Remedy(
        setting="DataLoader(..., pin_memory=True)",
        why=f"{round(100 * pageable)} % of the time of copies to the device is for memory that "
        "is not pinned",
        applicability="safe",
        cost="the memory of batches under way can then not be paged out",
        question=WhatIf(pin=True),
    )
