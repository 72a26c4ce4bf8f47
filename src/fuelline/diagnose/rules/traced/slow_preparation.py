"""PR212 slow-preparation: the device is idle while the training process prepares the next input.

What: idle time under the data loader's events where recorded stacks show its own code at work, and
idle time in gaps of a millisecond and more that end in a copy from the host to the device.
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Known problem: a copy of something else than an input also ends such a gap; the stacks show it.
Fix: prepare inputs in other processes; make the function faster that the stacks name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import prepare_beside, record_stacks
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


class SlowPreparation:
    """Transform x code, from a trace."""

    code: Final = "PR212"
    name: Final = "slow-preparation"
    stage: Final = "transform"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if the host's own preparing covers much idle time."""
        trace = facts.trace
        if trace is None:
            return None
        loading = (value_of(trace.data_wait_share) or 0.0) if "data loader" in trace.frames else 0.0
        made = value_of(trace.preparing_share) or 0.0
        share = loading + made
        if share < LISTED_SHARE or share < (value_of(trace.data_wait_share) or 0.0):
            return None
        causes: list[IdleCause] = ["python", "python between steps", "operators"]
        if trace.preparing_under is not None:
            causes.sort(key=lambda cause: cause != trace.preparing_under)
        if loading > made:
            causes = ["data loader"]
        is_named = any(cause in trace.frames for cause in causes)
        where = mostly_in(trace, *(causes if is_named else causes[:1]))
        frame = next((trace.frames[cause] for cause in causes if cause in trace.frames), None)
        faster = [] if frame is None else [_faster(frame.function)]
        if frame is None:
            faster = [record_stacks(trace)]
        return found_in(
            self,
            facts,
            share,
            sentence=f"The devices are idle for {percent(share)} of the time while the host "
            f"prepares the next input{where}.",
            evidence=[*frame_evidence(trace, *causes), *busy_evidence(trace)],
            remedies=[prepare_beside(trace), *faster],
            on_host=True,
        )


def _faster(function: str) -> Remedy:
    return Remedy(
        setting=f"make {function}() faster, run it on the device, or once and ahead of time",
        why="most of the preparing is spent in it",
        applicability="display",
    )
