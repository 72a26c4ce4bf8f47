"""Copies to the device that the host waits for, from memory that is pinned.

Not applied: a training that writes into a batch after it was copied would race with the copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import value_of

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

MUCH = 0.5
"""Of the time in copies: below that most of them do not wait already."""
COPIES = 0.03
"""Of the window, in copies: even without them a job gains no more than that."""


def propose(facts: Facts) -> Remedy | None:
    """Fires where copies wait."""
    blocking = value_of(facts.transfer.blocking_share)
    if blocking is None or blocking < MUCH or facts.exposed_share_of("transfer") < COPIES:
        return None
    return Remedy(
        setting="batch.to(device, non_blocking=True), with pin_memory=True in the DataLoader",
        why=f"the host waits during {round(100 * blocking)} % of the time of copies to the device",
        applicability="unsafe",
        risk="the batch must not be written to until the copy is done",
    )
