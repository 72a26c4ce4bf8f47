"""PA513 host-code: the device is idle while the host runs code of its own instead of launching.

What: idle time under Python in gaps of a millisecond and more, in marked steps or at least three
times: no launch takes that long. Recorded stacks name the code; without them the advice is to
record them. What prepares an input is PR212; what is paid once is PA512. Where it is the smaller
part of slow launching, CP411 speaks for both.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Known problem: a profiler that records stacks slows the host down; then the confidence is medium.
Fix: move that code out of the loop, do it less often, or in another thread or process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import record_stacks
from fuelline.diagnose.evidence.traces import (
    busy_evidence,
    found_in,
    frame_evidence,
    mostly_in,
)
from fuelline.diagnose.rule import LISTED_SHARE
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding
    from fuelline.schema.parts import IdleCause


class HostCode:
    """Pause x code, from a trace."""

    code: Final = "PA513"
    name: Final = "host-code"
    stage: Final = "pause"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if code that launches nothing covers much idle time."""
        trace = facts.trace
        if trace is None:
            return None
        share = value_of(trace.host_code_share) or 0.0
        if share < LISTED_SHARE:
            return None
        causes: tuple[IdleCause, ...] = ("python", "python between steps")
        unseen = (value_of(trace.unseen_share) or 0.0) > share / 2
        where = ", of which nothing was recorded" if unseen else mostly_in(trace, *causes)
        return found_in(
            self,
            facts,
            share,
            sentence=f"The devices are idle for {percent(share)} of the time while the host runs "
            f"other code instead of launching work{where}.",
            evidence=[*frame_evidence(trace, *causes), *busy_evidence(trace)],
            remedies=[record_stacks(trace), _ELSEWHERE] if unseen else [_ELSEWHERE],
            confidence="medium" if unseen else "high",
            on_host=True,
            may_gain=not unseen,
        )


_ELSEWHERE = Remedy(
    setting="move that code out of the loop, run it less often, or in another thread or process",
    why="the device has nothing to do meanwhile",
    applicability="display",
)
