"""CP411 launch-bound: the device is idle because the host has not launched the next kernel yet.

What: idle time in which the host ran operators, Python or launches, and the device's queue was
empty; allocations apart (PA511), synchronising calls apart (CP413), data loading apart (PR211).
Threshold: 5 % of the devices' time to be listed, 10 % to be the verdict.
Known problem: a profiler that records stacks slows the host down; then the confidence is medium.
Fix: fewer and larger kernels: torch.compile, CUDA graphs, fused optimizers, larger batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.traces import busy_evidence, launch_evidence, under
from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import Missing, value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


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
        share = trace.launch_share.value - (value_of(trace.allocator_share) or 0.0)
        if share < LISTED_SHARE:
            return None
        slowed = any(each.code == "stacks" for each in trace.quality)
        between = value_of(trace.between_steps_share) or 0.0
        return found(
            self,
            facts,
            share,
            sentence=f"The devices are idle for {percent(share)} of the time because the host "
            f"launches work too slowly{under(trace, 'operators')}.",
            evidence=[
                *launch_evidence(trace),
                Evidence(what=f"{percent(between)} of the time is spent in Python between steps"),
                *busy_evidence(trace),
            ],
            remedies=[
                Remedy(
                    setting='model = torch.compile(model, mode="reduce-overhead")',
                    why="fewer kernels, launched together as a graph",
                    applicability="unsafe",
                    risk="results may differ in the last bits; graphs need fixed shapes",
                ),
                Remedy(
                    setting="a larger batch; fused=True in the optimizer",
                    why="longer kernels hide their launches",
                    applicability="unsafe",
                    risk="training behaves differently with another batch size",
                ),
            ],
            confidence="medium" if slowed else "high",
        )
