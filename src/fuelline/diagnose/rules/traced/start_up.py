"""PA512 start-up: most of what was recorded is paid once, and says little about the job.

What: idle time while the host captures a graph, or is in a launching call for a millisecond and
more, as when it loads or builds a kernel's code. Where steps are not marked, also what operators
and the allocator do for that long before a kernel that was never launched before, and any stretch
of idle time that nothing as long follows: there it cannot be said to be of a step.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Known problem: a job that meets new shapes all the time pays for its kernels again and again.
Fix: record after the warm-up. Nothing is proposed for the start itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import record_longer, record_warm
from fuelline.diagnose.evidence.traces import (
    busy_evidence,
    found_in,
    frame_evidence,
    shorten,
    under,
)
from fuelline.diagnose.rule import LISTED_SHARE, fact
from fuelline.schema.readings import Missing, value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts, TraceSignals
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
        once = value_of(trace.once_share) or 0.0
        is_once = once > share / 2
        return found_in(
            self,
            facts,
            share,
            sentence=_tell_once(trace, share)
            if is_once
            else f"The devices are idle for {percent(share)} of the time while the host does "
            f"what is paid once{under(trace, 'start-up')}: this is start-up, and does not show "
            "how the job runs.",
            evidence=[
                *fact(lambda v: f"idle in what is paid once: {percent(v)}", trace.startup_share),
                *frame_evidence(trace, "one-off" if is_once else "start-up"),
                *busy_evidence(trace),
            ],
            remedies=[record_longer(trace) if is_once else record_warm(trace)],
            confidence="medium" if is_once else "high",
            may_gain=False,
        )


def _tell_once(trace: TraceSignals, share: float) -> str:
    """Of a stretch like no other."""
    name = trace.during.get("one-off")
    where = f"in {shorten(name)}" if name else "doing something of which nothing was recorded"
    return (
        f"The devices are idle for {percent(share)} of the time in what happened only once, with "
        f"the host mostly {where}: no step is marked, so it does not show how the job runs."
    )
