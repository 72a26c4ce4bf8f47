"""CP401 small-batches: a step costs nearly the same whatever the batch size.

What: costs that are fixed per batch, wherever they show up: launching operators one by one and
updating the weights, and handing a batch over from a worker when it is so small that the message
alone is the price. Not work per sample.
Measured by one of: batches of different sizes (the last one of an epoch) that take nearly the same
time; or a trainer thread that is on a core all the time with so many operators that the framework's
own cost per operator and the optimizer explain the step. Beside an accelerator with timed events
neither is asked: its own clock says whether it waits for launches, and a trainer that waits for the
device may be on a core all the same. What a crowded host or a quota adds to that waiting is not
counted: the trainer was ready to launch and had no core.
A hand-over counts if a batch has at most 1 MB, of which next to nothing is pickled, and takes a
message's time: workers idle meanwhile, or the trainer opens the message.
Thresholds: fixed cost of at least half of the step, because then twice the batch gives a third more
samples per second. Sizes are compared only up to 32 samples per step: beyond that a constant cost
is more likely the model's own (weights to read, a long sequence) than too small a batch.
Where the steps of a busy machine differ so much that less than a quarter may be fixed, sizes tell
nothing.
Known problem: a device that is never behind the host may compute nearly all the time; without its
driver's utilisation that cannot be told, and the loss is an upper bound. Where all batches have the
same size and operators do not explain the step, it is not known whether the step itself would take
longer with a larger batch; then only the hand-over is counted, and the report says so.
Fix: a larger batch, a fused optimizer, torch.compile or CUDA graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from fuelline.diagnose.evidence.split import is_message, split_input
from fuelline.diagnose.rule import LISTED_SHARE, fact, fewer_tensors, found, speedup_if_gone
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import Missing, Reading, at_least, value_of
from fuelline.schema.units import duration, number, percent, size

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import ComputeFacts, Facts
    from fuelline.schema.diagnosis.findings import Finding

_MOSTLY_FIXED = 0.5
_SURELY_FIXED = 0.25
"""The low end of the interval: below it twice the batch may give hardly more samples."""
_HOST_BOUND = 0.8
_PACED = 0.1
"""Of compute: the device waits for launches. It says so itself, and as much can be saved."""
_SMALL_BATCH = 32
_LARGER = 4
"""Times as many samples in the batch that is proposed; all of the gain if a step cost the same."""
_STILL_SMALL = 16
"""Samples: where a step is mostly fixed costs, fewer leave most of the gain on the table."""
_HANDLE_BYTES = 350
"""Of a tensor in a pickled batch: torch 2.13 takes 345 bytes for a batch of one tensor."""
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
        """Fires when fixed cost dominates compute, or the wait for input."""
        compute = value_of(facts.compute.compute_share) or 0.0
        fixed, messages = _fixed_share(facts.compute), _message_share(facts)
        share = (fixed or 0.0) * compute + messages
        if share < LISTED_SHARE:
            return None
        batch = _samples_of_a_pass(facts.compute)
        samples = f" of {number(batch)}" if batch is not None else ""
        is_paced = isinstance(facts.compute.paced_share, Reading)
        return found(
            self,
            facts,
            share,
            sentence=f"{percent(share)} of the time the accelerator waits for the host, which "
            f"launches operators too slowly: the batch{samples} is too small for it."
            if is_paced and not messages
            else f"{percent(share)} of the time goes to fixed costs per "
            f"{'batch' if messages else 'step'}: the batch{samples} is too small.",
            evidence=[*_handing_evidence(facts, messages), *_step_evidence(facts, fixed)],
            remedies=[
                _larger_batch(batch),
                *(_launch_less(fixed * compute) if fixed is not None else ()),
                *(_hand_over_less(facts, messages) if messages else ()),
            ],
            # Nobody knows how much of the rest is fixed: each remedy has its own bound.
            saved_share=1.0,
            confidence="medium" if _is_undivided(facts.compute) else "high",
        )


def _is_undivided(compute: ComputeFacts) -> bool:
    """Whether the device was only never behind the host: kernels are in the loss, too."""
    return isinstance(compute.paced_share, Reading) and compute.paced_share.low is not None


def _message_share(facts: Facts) -> float:
    """Of the window: training waits for batches that are nothing but messages."""
    split = split_input(facts)
    return split.handoff if split is not None and is_message(facts) else 0.0


def _larger_batch(batch: float | None) -> Remedy:
    larger = max(_STILL_SMALL, int(_LARGER * batch)) if batch else None
    return Remedy(
        setting=f"batch_size={larger}" if larger else "a larger batch_size",
        why="more samples then share the fixed cost",
        applicability="unsafe",
        risk="training behaves differently with another batch size; scale the learning rate",
        at_most_speedup=larger / batch if larger and batch else float(_LARGER),
        cost="more memory on the accelerator",
        question=WhatIf(batch_size=larger) if larger else None,
    )


def _launch_less(share: float) -> list[Remedy]:
    return [
        Remedy(
            setting="model = torch.compile(model); optimizer with fused=True",
            why="fewer, larger operators cost less to launch",
            applicability="unsafe",
            risk="results may differ in the last bits",
            at_most_speedup=speedup_if_gone(share),
        )
    ]


def _hand_over_less(facts: Facts, messages: float) -> list[Remedy]:
    """Where a message has the handles of several tensors."""
    several = at_least(facts.input.pickled_bytes, 2 * _HANDLE_BYTES)
    return [replace(fewer_tensors(), at_most_speedup=speedup_if_gone(messages))] if several else []


def _handing_evidence(facts: Facts, messages: float) -> list[Evidence]:
    """How small a batch is, and that nobody prepares samples while it is waited for."""
    if not messages:
        return []
    return [
        *fact(lambda v: f"a batch holds {size(v)} of tensors", facts.input.batch_bytes),
        *fact(lambda v: f"{duration(v)} to fetch one batch", facts.input.fetch_seconds),
        *fact(
            lambda v: f"the workers are idle {percent(v)} of the time that training waits",
            facts.input.idle_share,
        ),
        *fact(
            lambda v: f"the training process spends {percent(v)} of the wait unpickling",
            facts.input.unpickle_share,
        ),
    ]


def _step_evidence(facts: Facts, fixed: float | None) -> list[Evidence]:
    compute = facts.compute
    unknown = "whether the step itself would take longer with a larger batch was not seen: "
    reason = compute.fixed_share.reason if isinstance(compute.fixed_share, Missing) else ""
    return [
        *([Evidence(what=unknown + reason)] if fixed is None and reason else []),
        *fact(
            lambda v: f"{percent(v)} of a step would remain with an empty batch",
            compute.fixed_share,
        ),
        *fact(
            lambda v: f"{percent(v)} of a step is operator overhead and the optimizer",
            compute.dispatch_share,
        ),
        *fact(
            lambda v: (
                f"the accelerator is never behind the host in {percent(v)} of the time"
                if _is_undivided(compute)
                else f"the accelerator waits for launches {percent(v)} of the time"
            ),
            compute.paced_share,
        ),
        *_crowded_evidence(compute),
        *fact(lambda v: f"{number(v)} operators in a backward pass", compute.graph_nodes),
        *fact(lambda v: f"{duration(v)} per operator, forward and backward", compute.node_seconds),
        *fact(
            lambda v: f"the host computes during {percent(min(v, 1.0))} of the backward pass",
            compute.host_cpu_share,
        ),
    ]


def _crowded_evidence(compute: ComputeFacts) -> list[Evidence]:
    if not at_least(compute.crowded_share, LISTED_SHARE):
        return []
    return fact(
        lambda v: f"another {percent(v)} of the time it waits because the host has no core",
        compute.crowded_share,
    )


def _samples_of_a_pass(compute: ComputeFacts) -> float | None:
    """Loops may cut the loader's batch into pieces."""
    batch, passes = value_of(compute.batch_samples), value_of(compute.passes_per_batch) or 1.0
    return batch if batch is None or passes < _PIECES else max(1.0, round(batch / passes))


def _fixed_share(compute: ComputeFacts) -> float | None:
    """The better of the two estimates, if it carries the verdict; the device's own before both."""
    if isinstance(compute.paced_share, Reading):
        spent = value_of(compute.compute_share) or 0.0
        own = compute.paced_share.value - (value_of(compute.crowded_share) or 0.0)
        paced = min(1.0, own / spent) if spent > 0 else 0.0
        return paced if paced >= _PACED else None
    batch = _samples_of_a_pass(compute)
    fixed = compute.fixed_share
    if isinstance(fixed, Reading) and batch is not None and batch <= _SMALL_BATCH:
        is_sure = fixed.low is None or fixed.low >= _SURELY_FIXED
        return fixed.value if fixed.value >= _MOSTLY_FIXED and is_sure else None
    if at_least(compute.dispatch_share, _MOSTLY_FIXED) and at_least(
        compute.host_cpu_share, _HOST_BOUND
    ):
        return value_of(compute.dispatch_share)
    return None
