"""TR321 exposed-copies: the device copies without computing.

What: memcpy and memset with no kernel running beside them, and idle time while the host stages a
copy.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Fix: by where most of the copies go and from which memory: pinned memory where it is pageable, a
stream of its own where it is pinned, less offloading where XLA keeps values in the host's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import copy_less, describe_copies
from fuelline.diagnose.evidence.traces import busy_evidence, found_in
from fuelline.diagnose.rule import LISTED_SHARE, fact
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
        top = max(trace.copies, key=lambda copies: copies.seconds, default=None)
        kind = "" if top is None else f", mostly {describe_copies(top)}"
        offload = " (offload)" if trace.software.is_tpu and kind else ""
        return found_in(
            self,
            facts,
            share,
            sentence=f"The devices spend {percent(share)} of the time copying without "
            f"computing{kind}{offload}.",
            evidence=[
                *fact(lambda v: f"copying and nothing else: {percent(v)}", trace.copies_share),
                *busy_evidence(trace),
            ],
            remedies=copy_less(trace),
        )
