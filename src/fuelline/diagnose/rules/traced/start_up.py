"""PA512 start-up: most of what was recorded is paid once, and says little about the job.

What: idle time while the host captures a graph, or is in a launching call for a millisecond and
more, as when it loads or builds a kernel's code. Where steps are not marked, also what operators
and the allocator do for that long before a kernel that was never launched before.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Known problem: a job that meets new shapes all the time pays for its kernels again and again.
Fix: record after the warm-up. Nothing is proposed for the start itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import record_warm
from fuelline.diagnose.evidence.traces import busy_evidence, found_in, frame_evidence, under
from fuelline.diagnose.rule import LISTED_SHARE, fact
from fuelline.schema.readings import Missing
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class StartUp:
    """Pause x code, from a trace."""

    code: Final = "PA512"
    name: Final = "start-up"
    stage: Final = "pause"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if what is paid once covers much idle time."""
        trace = facts.trace
        if trace is None or isinstance(trace.startup_share, Missing):
            return None
        share = trace.startup_share.value
        if share < LISTED_SHARE:
            return None
        return found_in(
            self,
            facts,
            share,
            sentence=f"The devices are idle for {percent(share)} of the time while the host does "
            f"what is paid once{under(trace, 'start-up')}: this is start-up, and does not show "
            "how the job runs.",
            evidence=[
                *fact(lambda v: f"idle in what is paid once: {percent(v)}", trace.startup_share),
                *frame_evidence(trace, "start-up"),
                *busy_evidence(trace),
            ],
            remedies=[record_warm(trace)],
            may_gain=False,
        )
