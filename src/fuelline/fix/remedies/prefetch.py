"""Fetch times that vary a lot, so that a short queue runs dry although workers are idle.

Applied by --fix for loaders whose sampler may be asked ahead; proposed for the others' next run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import at_least, value_of
from fuelline.schema.worker_count import QUEUED

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

WAITED = 0.03
"""Of the window: as in fix.governor."""
IDLE = 0.8
UNEVEN = 0.5
"""Standard deviation over mean of a fetch; an even one needs no queue."""


def propose(facts: Facts) -> Remedy | None:
    """Fires where training waits, the workers do not work all the time, and fetches differ."""
    loader, demands = facts.loader, facts.demands
    wait = value_of(facts.input.wait_share)
    busy, spread = value_of(demands.busy_frac), value_of(demands.fetch_spread)
    if loader is None or not loader.num_workers or wait is None or busy is None or spread is None:
        return None
    if wait < WAITED or busy > IDLE or spread < UNEVEN:
        return None
    if at_least(facts.input.core_wait_share, QUEUED):
        return None
    deeper = 2 * (loader.prefetch_factor or 2)
    return Remedy(
        setting=f"DataLoader(..., prefetch_factor={deeper})",
        why=f"training waits {round(100 * wait)} % of the time although workers are busy only "
        f"{round(100 * busy)} % of it: fetch times vary by {round(100 * spread)} %",
        applicability="safe",
        cost=f"memory for {loader.num_workers * deeper // 2} more batches",
        question=WhatIf(prefetch=deeper),
    )
