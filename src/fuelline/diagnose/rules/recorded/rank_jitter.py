"""SY602 rank-jitter: ranks wait for each other, and take turns in being late.

What: the same waiting as for a straggler (SY601), without a rank that causes clearly more of it
than its share.
Threshold: 5 % of the window to be listed, 10 % to be the verdict, without waits that a device hides
(see SY601).
Fix: make steps equal on all ranks: samples of equal length, cores of one's own, no pauses that each
rank takes at its own time (garbage collection, logging).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import Missing
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding, JitterForecast


class RankJitter:
    """Sync x jitter, from the ranks."""

    code: Final = "SY602"
    name: Final = "rank-jitter"
    stage: Final = "sync"
    limit: Final = "jitter"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if ranks wait for each other and nobody is to blame."""
        waited = facts.sync.wait_share
        if isinstance(waited, Missing) or facts.sync.late:
            return None
        share = waited.value * facts.felt_frac("collectives")
        if share < LISTED_SHARE:
            return None
        by_rank = ", ".join(
            f"rank {rank} {percent(part)}"
            for rank, part in list(facts.sync.wait_share_by_rank.items())[:8]
        )
        return found(
            self,
            facts,
            share,
            sentence=f"{percent(share)} of the time ranks wait for whichever of them is last "
            f"this time: they take turns, so no single rank is to blame.",
            evidence=[
                Evidence(what=f"waiting for another rank: {by_rank}", signal=waited),
                *(_forecast(each) for each in facts.sync.jitter),
            ],
            remedies=[
                Remedy(
                    setting="give all ranks samples of equal cost (sort or bucket by length)",
                    why="each step takes as long as the slowest rank's",
                    applicability="unsafe",
                    risk="the order of samples changes",
                ),
                Remedy(
                    setting="gc.freeze() after setup, or gc.collect() on all ranks at one step",
                    why="collections at different times add up over ranks",
                    applicability="display",
                ),
            ],
        )


def _forecast(jitter: JitterForecast) -> Evidence:
    span = f"{duration(jitter.low)} to {duration(jitter.high)}"
    words = "costs" if jitter.is_measured else "would cost"
    return Evidence(
        what=f"with {jitter.ranks} ranks jitter {words} {duration(jitter.wait_seconds)} a step "
        f"({span})"
    )
