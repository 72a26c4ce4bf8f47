"""PA511 allocator-stalls: the device is idle while the host allocates or frees device memory.

What: idle time under cudaMalloc, cudaFree, hipMalloc, hipFree and the like. Freeing waits for the
device, so each call empties the queue.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Known problem: at the start of a job the framework's pool is empty and allocating is normal; what
comes before kernels that were not launched before is PA512.
Fix: let the framework's caching allocator keep its memory; no empty_cache() in the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import keep_memory
from fuelline.diagnose.evidence.traces import busy_evidence, found_in, frame_evidence, under
from fuelline.diagnose.rule import LISTED_SHARE, fact
from fuelline.schema.readings import Missing
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class AllocatorStalls:
    """Pause x memory, from a trace."""

    code: Final = "PA511"
    name: Final = "allocator-stalls"
    stage: Final = "pause"
    limit: Final = "memory"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if allocation covers much idle time."""
        trace = facts.trace
        if trace is None or isinstance(trace.allocator_share, Missing):
            return None
        share = trace.allocator_share.value
        if share < LISTED_SHARE:
            return None
        return found_in(
            self,
            facts,
            share,
            sentence=f"The devices are idle for {percent(share)} of the time while the host "
            f"allocates or frees device memory{under(trace, 'allocator')}.",
            evidence=[
                *fact(lambda v: f"idle in allocator calls: {percent(v)}", trace.allocator_share),
                *frame_evidence(trace, "allocator"),
                *busy_evidence(trace),
            ],
            remedies=[keep_memory(trace)],
        )
