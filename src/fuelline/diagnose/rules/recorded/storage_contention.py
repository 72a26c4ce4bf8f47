"""IN103 storage-contention: others keep the storage busy that this job waits for.

What: fetches are blocked on a device or mount, and processes outside the job cause most of its
work.
Measured by: at least half of the device's operations or bytes are not the job's own, or other
processes are seen working on the same mount while the job is blocked in it.
Threshold: one half: below it the job is its own worst neighbour.
Known problem: on a network file system the other users are on other hosts; there only the server's
latency shows, and the answer is IN101 or IN105.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.evidence.storage import nearer_data, read_evidence
from fuelline.diagnose.rule import LISTED_SHARE, fact, found, where
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import Reading
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding

_MOST = 0.5


class StorageContention:
    """Read x contention."""

    code: Final = "IN103"
    name: Final = "storage-contention"
    stage: Final = "read"
    limit: Final = "contention"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when reads dominate the wait and others dominate the storage."""
        split = split_input(facts)
        others = facts.storage.others_share
        if split is None or split.read < LISTED_SHARE:
            return None
        if not isinstance(others, Reading) or others.value < _MOST:
            return None
        name = facts.storage.others_name
        who = f" (mostly {name})" if name else ""
        return found(
            self,
            facts,
            split.read,
            sentence=f"{percent(split.read)} of training time is spent waiting for "
            f"{where(facts.input.place)}, where {percent(others.value)} of the work is for "
            f"other processes{who}.",
            evidence=[
                *fact(
                    lambda v: f"{percent(v)} of the storage's work is not this job's{who}", others
                ),
                *read_evidence(facts),
            ],
            remedies=[
                Remedy(
                    setting=f"move {name or 'the other work'} to another disk or another time",
                    why="the storage serves others while this job waits",
                    applicability="display",
                    question=WhatIf(alone=True),
                ),
                nearer_data(facts),
            ],
        )
