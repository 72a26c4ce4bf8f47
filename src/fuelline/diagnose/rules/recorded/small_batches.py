"""CP401 small-batches: a step costs nearly the same whatever the batch size.

What: most of the compute time is fixed cost per step: launching operators one by one and updating
the weights, not work per sample.
Measured by one of: batches of different sizes (the last one of an epoch) that take nearly the same
time; or a trainer thread that is on a core all the time with so many operators that the framework's
own cost per operator and the optimizer explain the step.
Thresholds: fixed cost of at least half of the step, because then twice the batch gives a third more
samples per second. Sizes are compared only up to 32 samples per step: beyond that a constant cost
is more likely the model's own (weights to read, a long sequence) than too small a batch.
Known problem: on CUDA the device's own timeline is better evidence.
Fix: a larger batch, a fused optimizer, torch.compile or CUDA graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import at_least, value_of
from fuelline.schema.units import duration, number, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import ComputeFacts, Facts
    from fuelline.schema.diagnosis.findings import Finding

_MOSTLY_FIXED = 0.5
_HOST_BOUND = 0.8
_SMALL_BATCH = 32
_PIECES = 4
"""Backward passes for a batch, from which on it is taken to be cut: two or three may be as many
losses of the same samples."""


class SmallBatches:
    """Compute x launch."""

    code: Final = "CP401"
    name: Final = "small-batches"
    stage: Final = "compute"
    limit: Final = "launch"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when fixed cost dominates compute."""
        fixed = _fixed_share(facts.compute)
        compute = value_of(facts.compute.compute_share)
        if fixed is None or compute is None or fixed * compute < LISTED_SHARE:
            return None
        batch = _samples_of_a_pass(facts.compute)
        size = f" of {number(batch)}" if batch is not None else ""
        return found(
            self,
            facts,
            fixed * compute,
            sentence=f"{percent(fixed * compute)} of the time goes to fixed costs per step: the "
            f"batch{size} is too small.",
            evidence=[
                *fact(
                    lambda v: f"{percent(v)} of a step would remain with an empty batch",
                    facts.compute.fixed_share,
                ),
                *fact(
                    lambda v: f"{percent(v)} of a step is operator overhead and the optimizer",
                    facts.compute.dispatch_share,
                ),
                *fact(
                    lambda v: f"{number(v)} operators in a backward pass", facts.compute.graph_nodes
                ),
                *fact(
                    lambda v: f"{duration(v)} per operator, forward and backward",
                    facts.compute.node_seconds,
                ),
                *fact(
                    lambda v: f"the host computes during {percent(v)} of the backward pass",
                    facts.compute.host_cpu_share,
                ),
            ],
            remedies=[
                Remedy(
                    setting=f"batch_size={int(4 * batch)}" if batch else "a larger batch_size",
                    why="more samples then share the fixed cost",
                    applicability="unsafe",
                    risk="training behaves differently with another batch size; scale the "
                    "learning rate",
                    cost="more memory on the accelerator",
                    question=WhatIf(batch_size=int(4 * batch)) if batch else None,
                ),
                Remedy(
                    setting="model = torch.compile(model); optimizer with fused=True",
                    why="fewer, larger operators cost less to launch",
                    applicability="unsafe",
                    risk="results may differ in the last bits",
                ),
            ],
        )


def _samples_of_a_pass(compute: ComputeFacts) -> float | None:
    """Loops may cut the loader's batch into pieces."""
    batch, passes = value_of(compute.batch_samples), value_of(compute.passes_per_batch) or 1.0
    return batch if batch is None or passes < _PIECES else max(1.0, round(batch / passes))


def _fixed_share(compute: ComputeFacts) -> float | None:
    """The better of the two estimates, if it carries the verdict."""
    batch = _samples_of_a_pass(compute)
    fixed = value_of(compute.fixed_share)
    if fixed is not None and batch is not None and batch <= _SMALL_BATCH:
        return fixed if fixed >= _MOSTLY_FIXED else None
    if at_least(compute.dispatch_share, _MOSTLY_FIXED) and at_least(
        compute.host_cpu_share, _HOST_BOUND
    ):
        return value_of(compute.dispatch_share)
    return None
