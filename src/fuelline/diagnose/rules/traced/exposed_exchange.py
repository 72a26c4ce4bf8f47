"""SY612 exposed-exchange: devices exchange data without computing.

What: communication during which no kernel computes. Where ranks could be compared, only transfer
counts; with the trace of a single rank, all of it.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict; with a single rank the
confidence is lower, because it may be waiting for a peer.
Fix: overlap it with compute, send less, or use a faster link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import overlap_exchange
from fuelline.diagnose.evidence.traces import busy_evidence, found_in
from fuelline.diagnose.rule import LISTED_SHARE, fact
from fuelline.schema.readings import Missing, value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class ExposedExchange:
    """Sync x bandwidth, from a trace."""

    code: Final = "SY612"
    name: Final = "exposed-exchange"
    stage: Final = "sync"
    limit: Final = "bandwidth"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if communication takes time of its own."""
        trace = facts.trace
        if trace is None or isinstance(trace.transfer_share, Missing):
            return None
        alone = value_of(trace.undivided_share) or 0.0
        share = trace.transfer_share.value + alone
        if share < LISTED_SHARE:
            return None
        is_sampled = any(each.code == "sampled" for each in trace.quality)
        is_alone = is_sampled or alone > share / 2
        doubt = ", or waits for a rank whose trace is missing" if is_alone else ""
        return found_in(
            self,
            facts,
            share,
            sentence=f"For {percent(share)} of the time a device exchanges data without "
            f"computing{doubt}.",
            evidence=[
                *fact(
                    lambda v: f"{percent(v)} of communication runs during compute",
                    trace.hidden_share,
                ),
                *busy_evidence(trace),
            ],
            remedies=[overlap_exchange(trace)],
            confidence="medium" if doubt else "high",
        )
