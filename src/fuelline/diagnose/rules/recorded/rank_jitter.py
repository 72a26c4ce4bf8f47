"""SY602 rank-jitter: ranks wait for each other, and take turns being late.

What: the same waiting as for a straggler (SY601), but no rank causes clearly more of it than its
share.
Threshold: 5 % of the window to be listed, 10 % to be the verdict, not counting waits that a busy
device hides (see SY601).
Fix: make steps take equally long on all ranks: samples of equal length, dedicated cores, no pauses
that each rank takes at its own time (garbage collection, logging).
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
            sentence=f"Ranks spend {percent(share)} of the time waiting for whichever of them is "
            "last; they take turns, so no single rank is to blame.",
            evidence=[
                Evidence(
                    what=f"each rank's own time spent waiting for another: {by_rank}",
                    signal=waited,
                ),
                *(_forecast(each) for each in facts.sync.jitter),
            ],
            remedies=[
                Remedy(
                    setting="give all ranks samples of equal cost (sort or bucket by length)",
                    why="each step takes as long as it does on the slowest rank",
                    applicability="unsafe",
                    risk="the order of samples changes",
                ),
                Remedy(
                    setting="gc.freeze() after setup, or gc.collect() on all ranks at the same "
                    "step",
                    why="garbage collections at different times add up over the ranks",
                    applicability="display",
                ),
            ],
        )


def _forecast(jitter: JitterForecast) -> Evidence:
    span = f"{duration(jitter.low)} to {duration(jitter.high)}"
    words = "costs" if jitter.is_measured else "would cost"
    return Evidence(
        what=f"with {jitter.ranks} ranks jitter {words} {duration(jitter.wait_seconds)} per step "
        f"({span})"
    )
