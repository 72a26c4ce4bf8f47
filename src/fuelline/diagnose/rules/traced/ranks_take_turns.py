"""SY613 ranks-take-turns: ranks wait for each other at collectives, and no single one is to blame.

What: waiting at matched collectives (as in SY611), with no rank that clearly causes it.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Fix: make steps more even: batches of equal length, no work on one rank only, quiet hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.traces import utilisation_evidence
from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import Missing
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class RanksTakeTurns:
    """Sync x jitter, from a trace."""

    code: Final = "SY613"
    name: Final = "ranks-take-turns"
    stage: Final = "sync"
    limit: Final = "jitter"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if ranks wait and no one of them is to blame."""
        trace = facts.trace
        if trace is None or isinstance(trace.waiting_share, Missing) or trace.late:
            return None
        share = trace.waiting_share.value
        if share < LISTED_SHARE:
            return None
        return found(
            self,
            facts,
            share,
            sentence=f"The devices spend {percent(share)} of the time at collectives waiting, "
            "sometimes for one rank, sometimes for another.",
            evidence=[
                *fact(lambda v: f"waiting for a peer: {percent(v)}", trace.waiting_share),
                *utilisation_evidence(trace),
            ],
            remedies=[
                Remedy(
                    setting="batches of equal length on all ranks; no other work on their hosts",
                    why="each step takes as long as its slowest rank",
                    applicability="display",
                )
            ],
        )
