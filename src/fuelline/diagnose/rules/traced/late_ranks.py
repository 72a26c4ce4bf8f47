"""SY611 late-ranks: some ranks come last at the collectives, and the kernels of all others spin.

What: collectives of an imported trace, matched across ranks: how much longer each takes than on the
rank where it is shortest. A waiting collective counts as utilisation, so the ranks that look
busiest are the victims, and the idle ones hold them up.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict. A rank is blamed if it
causes twice its share of the waiting (60 % of two) and comes last more often than by chance.
Fix: whatever that rank was doing meanwhile; the finding says what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.traces import utilisation_evidence
from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import Missing
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class LateRanks:
    """Sync x imbalance, from a trace."""

    code: Final = "SY611"
    name: Final = "late-ranks"
    stage: Final = "sync"
    limit: Final = "imbalance"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if some ranks cause the waiting."""
        trace = facts.trace
        if trace is None or isinstance(trace.waiting_share, Missing) or not trace.late:
            return None
        share = trace.waiting_share.value
        if share < LISTED_SHARE:
            return None
        names = " and ".join(str(late.rank) for late in trace.late)
        many = len(trace.late) > 1
        return found(
            self,
            facts,
            share,
            sentence=f"The devices spend {percent(share)} of the time at collectives waiting for "
            f"rank{'s' if many else ''} {names}. Rank {trace.late[0].rank}: "
            f"{trace.late[0].because}.",
            evidence=[
                *(
                    Evidence(
                        what=f"rank {late.rank} came last at {late.late_count} of {late.of} "
                        f"collectives and cost the others {duration(late.caused_wait_seconds)}: "
                        f"{late.because}"
                    )
                    for late in trace.late
                ),
                Evidence(what=f"waiting by rank: {_by_rank(trace.waiting_share_by_rank)}"),
                *utilisation_evidence(trace),
            ],
            remedies=[
                Remedy(
                    setting=f"look at rank{'s' if many else ''} {names}: host, cores, data",
                    why="the other ranks are only as fast as the slowest one",
                    applicability="display",
                )
            ],
        )


def _by_rank(shares: dict[str, float]) -> str:
    most = sorted(shares.items(), key=lambda entry: -entry[1])[:8]
    return ", ".join(f"{rank}: {percent(share)}" for rank, share in most)
