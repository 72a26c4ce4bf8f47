"""IN104 page-cache-thrash: the data was in memory, was evicted, and has to be read again.

What: fetches are blocked in reads although the same bytes were read before; the kernel counts them
as refaults: pages that it evicted and soon needed back.
Measured by: refaulted bytes are at least 30 % of the bytes that the job read from the device, in
the second half of the window.
Why so much: a first epoch has no refaults, and neither has an epoch that fits in memory; below a
third, avoiding them would not be the remedy.
Fix: a higher memory limit, a smaller data set per host, fewer workers that hold copies, sequential
shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.evidence.storage import read_evidence
from fuelline.diagnose.rule import LISTED_SHARE, fact, found, where
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import at_least
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding

_REFAULTS = 0.3


class PageCacheThrash:
    """Read x memory."""

    code: Final = "IN104"
    name: Final = "page-cache-thrash"
    stage: Final = "read"
    limit: Final = "memory"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when reads dominate the wait and most of them are refaults."""
        split = split_input(facts)
        if split is None or split.read < LISTED_SHARE:
            return None
        if not at_least(facts.storage.refault_share, _REFAULTS):
            return None
        return found(
            self,
            facts,
            split.read,
            sentence=f"{percent(split.read)} of training time is spent waiting for data from "
            f"{where(facts.input.place)} that was in memory before but was evicted.",
            evidence=[
                *fact(
                    lambda v: f"{percent(v)} of the bytes read from disk had been cached before",
                    facts.storage.refault_share,
                ),
                *fact(
                    lambda v: f"{percent(v)} of the memory limit is in use",
                    facts.storage.memory_use,
                ),
                *read_evidence(facts),
            ],
            remedies=[
                Remedy(
                    setting="give the job more memory than the size of the data set, and raise "
                    "its memory limit to match",
                    why="epochs after the first then come from memory",
                    applicability="display",
                    cost="memory for the whole data set",
                    question=WhatIf(storage="warm"),
                ),
            ],
        )
