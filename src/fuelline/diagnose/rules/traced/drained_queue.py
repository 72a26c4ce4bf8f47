"""CP413 drained-queue: the device is idle while the host is in a call that waits for the device.

What: idle time under cudaStreamSynchronize, cudaDeviceSynchronize, `.item()` and the like: the
host lets the device run dry before it queues more.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Fix: read values rarely; keep sums on the device; use events instead of device-wide waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import read_rarely
from fuelline.diagnose.evidence.traces import busy_evidence, found_in, frame_evidence, under
from fuelline.diagnose.rule import LISTED_SHARE, fact
from fuelline.schema.readings import Missing
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class DrainedQueue:
    """Compute x code, from a trace."""

    code: Final = "CP413"
    name: Final = "drained-queue"
    stage: Final = "compute"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if synchronising calls cover much idle time."""
        trace = facts.trace
        if trace is None or isinstance(trace.sync_share, Missing):
            return None
        share = trace.sync_share.value
        if share < LISTED_SHARE:
            return None
        return found_in(
            self,
            facts,
            share,
            sentence=f"The devices are idle for {percent(share)} of the time while the host waits "
            f"for them{under(trace, 'synchronise')}.",
            evidence=[
                *fact(lambda v: f"idle in synchronising calls: {percent(v)}", trace.sync_share),
                *frame_evidence(trace, "synchronise"),
                *busy_evidence(trace),
            ],
            remedies=[read_rarely(trace)],
        )
