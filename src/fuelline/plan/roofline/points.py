"""Operators under a roof: what binds each, how far below it runs, what batch changes that.

The roof over an operator is the larger of FLOPs over the math rate and bytes over the bandwidth;
if dispatching it
takes longer than either, it is launch-bound. FLOPs and activations grow with the batch, parameters
do not: from
that follows the batch at which memory gives way to math.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.schema.plan.roofline import OperatorPoint
from fuelline.schema.readings import Reading, value_of

if TYPE_CHECKING:
    from fuelline.schema.plan.roofline import Roofline

MOST_BATCH = 1e6
"""Beyond, no batch is an advice."""


class OperatorWork(Struct, frozen=True, kw_only=True):
    """One operator with one set of shapes, all its calls together."""

    name: str
    shapes: str
    precision: str
    module: str
    calls: int
    flops: float
    weight_bytes: float
    moved_bytes: float
    seconds: Reading


def place(
    work: OperatorWork, roofline: Roofline, total_s: float, batch: int | None
) -> OperatorPoint:
    """One operator as a point."""
    ceiling = roofline.ceiling(work.precision)
    peak = value_of(ceiling.flops_per_s) if ceiling else None
    math_s = work.flops / peak if peak else 0.0
    size = work.weight_bytes + work.moved_bytes
    memory_s = size / roofline.bandwidth
    launch_s = work.calls * roofline.launch_s.value
    roof_s = max(math_s, memory_s, launch_s)
    bound = "math" if math_s == roof_s else "memory" if memory_s == roof_s else "launch"
    return OperatorPoint(
        name=work.name,
        shapes=work.shapes,
        precision=work.precision,
        calls=work.calls,
        flops=work.flops,
        moved_bytes=size,
        seconds=work.seconds,
        share=work.seconds.value / total_s if total_s > 0 else 0.0,
        bound=bound,
        roof_s=roof_s,
        batch_to_turn=_turn(work, peak, roofline, batch, bound),
        module=work.module,
    )


def _turn(
    work: OperatorWork, peak: float | None, roofline: Roofline, batch: int | None, bound: str
) -> float | None:
    """Where the other limit takes over; None if no batch does that."""
    if batch is None or peak is None:
        return None
    flops, moved = work.flops / batch, work.moved_bytes / batch
    if bound == "launch":
        each = max(flops / peak, moved / roofline.bandwidth)
        found = work.calls * roofline.launch_s.value / each if each else None
    else:
        # flops * b / peak = (weights + moved * b) / bandwidth
        gain = flops / peak - moved / roofline.bandwidth
        found = work.weight_bytes / roofline.bandwidth / gain if gain > 0 else None
    return found if found is not None and 1 <= found <= MOST_BATCH else None
