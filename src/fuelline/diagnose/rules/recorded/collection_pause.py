"""PA504 collection-pause: Python's garbage collector stops the loop.

What: collections on the training thread that lasted at least a millisecond, outside other hooks.
Why: a full collection visits every Python object; millions of small objects in memory make it slow.
Fix: freeze long-lived objects, and collect by hand at a good moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class CollectionPause:
    """Pause x code, in garbage collection."""

    code: Final = "PA504"
    name: Final = "collection-pause"
    stage: Final = "pause"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires on the time spent collecting."""
        share = facts.share_of("garbage collection")
        if share < LISTED_SHARE:
            return None
        seconds = share * facts.window.seconds
        return found(
            self,
            facts,
            share,
            sentence=f"Training stops for {percent(share)} of the time while Python's garbage "
            "collector runs.",
            evidence=[
                Evidence(what=f"{duration(seconds)} in collections of a millisecond or more")
            ],
            remedies=[
                Remedy(
                    setting="gc.collect(); gc.freeze() after setup, then gc.collect(1) every "
                    "1,000 steps",
                    why="objects that live as long as the job need not be scanned again",
                    applicability="safe",
                    risk="memory in reference cycles is freed later",
                    question=WhatIf(rarer={"garbage collection": 1000.0}),
                )
            ],
        )
