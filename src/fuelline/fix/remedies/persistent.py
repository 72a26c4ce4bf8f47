"""Workers that are started again for every epoch.

Not applied: a dataset that is changed between epochs, or that draws random numbers in its workers,
gives different samples when the workers live on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import RISK_OF_STAYING

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

MUCH = 0.02
"""Of the window in starting epochs: the least that a trial can measure."""


def propose(facts: Facts) -> Remedy | None:
    """Fires where starting epochs costs something."""
    loader = facts.loader
    if loader is None or not loader.num_workers or loader.persistent_workers:
        return None
    share = facts.share_of("epoch start")
    if share < MUCH or not facts.begins_again:
        return None
    return Remedy(
        setting="DataLoader(..., persistent_workers=True)",
        why=f"starting workers for each epoch takes {round(100 * share)} % of the time",
        applicability="unsafe",
        risk=RISK_OF_STAYING,
        cost="the workers keep their memory between epochs",
        question=WhatIf(persistent=True),
    )
