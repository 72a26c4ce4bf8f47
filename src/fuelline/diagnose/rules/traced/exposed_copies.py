"""TR321 exposed-copies: the device copies without computing.

What: memcpy and memset with no kernel running beside them, and idle time while the host stages a
copy.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Fix: pinned memory, non_blocking=True and a separate stream, so that copies run during compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.traces import busy_evidence
from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import Missing
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class ExposedCopies:
    """Transfer x bandwidth, from a trace."""

    code: Final = "TR321"
    name: Final = "exposed-copies"
    stage: Final = "transfer"
    limit: Final = "bandwidth"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if copies take time of their own."""
        trace = facts.trace
        if trace is None or isinstance(trace.copies_share, Missing):
            return None
        share = trace.copies_share.value
        if share < LISTED_SHARE:
            return None
        return found(
            self,
            facts,
            share,
            sentence=f"The devices spend {percent(share)} of the time copying without computing.",
            evidence=[
                *fact(lambda v: f"copying and nothing else: {percent(v)}", trace.copies_share),
                *busy_evidence(trace),
            ],
            remedies=[
                Remedy(
                    setting='DataLoader(..., pin_memory=True); batch.to("cuda", non_blocking=True)',
                    why="copies from pinned memory can run alongside kernels",
                    applicability="unsafe",
                    risk="the batch must not be changed before the copy is done",
                )
            ],
        )
