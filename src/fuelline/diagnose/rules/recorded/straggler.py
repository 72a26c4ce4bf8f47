"""SY601 straggler: one rank arrives late at the collectives, and all others wait for it.

What: the time at collectives during which all ranks but the last have arrived.
Threshold: 5 % of the window to be listed, 10 % to be the verdict. One rank must cause clearly more
than its share of the waiting (60 % of two, twice its share of more); if ranks take turns, it is
jitter (SY602). If the next step is shorter by as much as the wait took, the device was still
working through its queue, and the wait costs nothing.
Fix: whatever makes that rank late; its own stage, limit and remedies are part of the finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import Missing
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding, LateRank


class Straggler:
    """Sync x imbalance."""

    code: Final = "SY601"
    name: Final = "straggler"
    stage: Final = "sync"
    limit: Final = "imbalance"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if one rank causes the waiting between ranks."""
        waited = facts.sync.straggler_share
        if isinstance(waited, Missing) or not facts.sync.late:
            return None
        share = waited.value * facts.felt_frac("collectives")
        if share < LISTED_SHARE:
            return None
        worst = facts.sync.late[0]
        others = max(1, facts.sync.ranks - 1)
        each_time = worst.caused_wait_seconds / max(1, worst.late_count) / others
        return found(
            self,
            facts,
            share,
            sentence=f"Rank {worst.rank} is late in {percent(worst.late_count / worst.of)} of the "
            f"steps and the others wait {duration(each_time)} each time: {worst.because}",
            evidence=[
                *(_late(each) for each in facts.sync.late),
                Evidence(what=f"each rank's own time spent waiting for another: {_by_rank(facts)}"),
            ],
            remedies=[
                *(
                    msgspec.structs.replace(each, why=f"what rank {worst.rank} needs: {each.why}")
                    for each in worst.remedies
                ),
                Remedy(
                    setting=f"look at rank {worst.rank} alone: its device, its host, its data",
                    why="the other ranks are only as fast as the slowest one",
                    applicability="display",
                ),
            ],
        )


def _late(late: LateRank) -> Evidence:
    cause = f" (stage: {late.stage}, limit: {late.limit})" if late.stage else ""
    return Evidence(
        what=f"rank {late.rank} came last in {late.late_count} of {late.of} steps and cost the "
        f"others {duration(late.caused_wait_seconds)}{cause}"
    )


def _by_rank(facts: Facts) -> str:
    return ", ".join(
        f"rank {rank} {percent(share)}"
        for rank, share in sorted(
            facts.sync.wait_share_by_rank.items(), key=lambda entry: -entry[1]
        )[:8]
    )
