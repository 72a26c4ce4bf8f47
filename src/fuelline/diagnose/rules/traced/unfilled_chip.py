"""CP412 unfilled-chip: kernels are running, but most of the chip's multiprocessors have no block.

What: the time that kernels are resident, less the share of multiprocessors that they fill (blocks
over multiprocessors, at most one each), not counting the time that collectives wait.
Threshold: computing kernels must fill less than half of the chip, and 10 % of the devices' time
must be lost that way; then a grid twice as large would cost little more time.
Known problem: a filled chip is not always a used one: a kernel with one warp per block fills it and
idles. See occupancy.
Fix: larger batches or longer sequences; several small jobs per chip (MPS, MIG).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.traces import found_in, launch_evidence
from fuelline.diagnose.rule import VERDICT_SHARE, fact
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import Missing, value_of
from fuelline.schema.units import percent

_HALF = 0.5

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class UnfilledChip:
    """Compute x parallelism, from a trace."""

    code: Final = "CP412"
    name: Final = "unfilled-chip"
    stage: Final = "compute"
    limit: Final = "parallelism"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if computing kernels leave most of the chip empty."""
        trace = facts.trace
        if trace is None or isinstance(trace.fill, Missing):
            return None
        compute = value_of(trace.compute_share) or 0.0
        filled = min(compute, trace.fill.value)
        if compute - filled < VERDICT_SHARE or filled >= _HALF * compute:
            return None
        return found_in(
            self,
            facts,
            compute - filled,
            sentence=f"Kernels compute for {percent(compute)} of the time but fill only "
            f"{percent(filled / compute)} of the chip.",
            evidence=[
                *fact(lambda v: f"multiprocessors with a block: {percent(v)}", trace.fill),
                *fact(lambda v: f"estimated occupancy: {percent(v)}", trace.occupancy),
                *launch_evidence(trace),
            ],
            remedies=[
                Remedy(
                    setting="a larger batch, or longer sequences",
                    why="the same kernels then have blocks for all multiprocessors",
                    applicability="unsafe",
                    risk="training behaves differently with another batch size",
                )
            ],
        )
