"""CP411 launch-bound: the device is idle because the host has not launched the next kernel yet.

What: idle time in which the host ran operators, Python or launches, and the device's queue was
empty. Apart are allocations (PA511), synchronising calls (CP413), data loading (PR211), what is
paid once (PA512), and code that launches nothing if that is most of it (PR212, PA513).
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Known problem: a profiler that records stacks slows the host down; then the confidence is medium.
Fix: fewer and larger kernels, in the way of the framework at hand: torch.compile or jax.jit, graphs
if there are none, fused optimizers, larger batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.advice import fewer_launches
from fuelline.diagnose.evidence.traces import (
    busy_evidence,
    found_in,
    frame_evidence,
    launch_evidence,
    mostly_in,
    under,
)
from fuelline.diagnose.rule import LISTED_SHARE
from fuelline.schema.diagnosis.findings import Evidence
from fuelline.schema.readings import Missing, value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.diagnosis.facts import Facts, TraceSignals
    from fuelline.schema.diagnosis.findings import Finding
    from fuelline.schema.parts import IdleCause


class LaunchBound:
    """Compute x launch, from a trace."""

    code: Final = "CP411"
    name: Final = "launch-bound"
    stage: Final = "compute"
    limit: Final = "launch"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if the host is too slow for the device."""
        trace = facts.trace
        if trace is None or isinstance(trace.launch_share, Missing):
            return None
        share = trace.launch_share.value
        if share < LISTED_SHARE:
            return None
        cause = trace.largest or "operators"
        return found_in(
            self,
            facts,
            share,
            sentence=f"The devices are idle for {percent(share)} of the time because the host "
            f"launches work too slowly{_where(trace, cause)}.",
            evidence=[
                *launch_evidence(trace),
                *frame_evidence(trace, cause),
                *_between(trace),
                *busy_evidence(trace),
            ],
            remedies=fewer_launches(trace),
            on_host=True,
        )


def _where(trace: TraceSignals, cause: IdleCause) -> str:
    """The user's function where Python itself is slow; else the call, which says more."""
    if cause in _PYTHON and cause in trace.frames:
        return mostly_in(trace, cause)
    return under(trace, cause) or _NAMELESS.get(cause, "")


_PYTHON: tuple[IdleCause, ...] = ("python", "python between steps")
_NAMELESS: Mapping[IdleCause, str] = {
    "launch latency": ", mostly in the time from a launch to its kernel's start",
    "python": ", mostly in code of which nothing was recorded",
    "python between steps": ", mostly between steps",
}
"""Causes without an event that they lie under."""


_LEAST_BETWEEN = 0.005
"""Below this it says nothing."""


def _between(trace: TraceSignals) -> list[Evidence]:
    between = value_of(trace.between_steps_share)
    if not between or between < _LEAST_BETWEEN:
        return []
    return [Evidence(what=f"{percent(between)} of the time is spent in Python between steps")]
