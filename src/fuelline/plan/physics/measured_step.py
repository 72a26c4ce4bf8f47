"""Operators on a device that was measured itself: its own curve of products instead of two shares.

`fuelline roofline` times products by their rows, attention in prefill and decode, and small
operators on one token
and on many. Those times are taken as they are; what a product waits for is told from its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuelline.plan.physics.constants import Matmul
    from fuelline.plan.physics.kernels import Operator
    from fuelline.plan.physics.setup import Setup
    from fuelline.plan.physics.tally import Tally

MOSTLY = 0.5
"""A product whose bytes alone take this share of its time waits for memory, not for math."""


def add_measured(tally: Tally, setup: Setup, operators: Iterable[Operator], own: Matmul) -> None:
    """Put each operator's time where it belongs."""
    for op in operators:
        unit = setup.unit(op.math)
        entry = setup.rates(unit) if setup.rates(unit).by_rows else own
        if op.kind == "elementwise":
            launch_s = own.small_us * 1e-6
            tally.moved += op.count * op.moved_bytes / (own.move_share * setup.bandwidth)
        else:
            launch_s = entry.launch_us * 1e-6
            _add(tally, setup, op, entry, unit)
        if not setup.engine.fused:
            tally.launch += op.count * op.launches * (setup.engine.launch_us * 1e-6 or launch_s)


def _add(tally: Tally, setup: Setup, op: Operator, entry: Matmul, unit: str) -> None:
    peak = setup.peak(unit)
    if op.kind == "attention":
        math_s = op.flops / ((entry.attention_share or 1.0) * peak)
        move_s = op.moved_bytes / ((entry.cache_share or 1.0) * setup.bandwidth)
        if math_s > move_s:
            tally.attention_math += op.count * math_s
        else:
            tally.cache += op.count * move_s
        return
    seconds = op.flops / (entry.reach_at(op.rows or 1.0, _widening(op)) * peak)
    move_s = (op.weight_bytes + op.moved_bytes) / (entry.memory_share * setup.bandwidth)
    if move_s > MOSTLY * seconds:
        tally.weights += op.count * max(seconds, move_s)
    else:
        tally.math += op.count * seconds


def _widening(op: Operator) -> float | None:
    """Values that a product gives for each that it takes; None for what is no plain product."""
    if not op.rows or not op.inner:
        return None
    return op.flops / (2 * op.rows * op.inner**2)
