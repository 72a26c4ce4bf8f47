"""The latency floor and the critical batch: two numbers that follow from bytes and rates alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.predict.planner.physics.kernels import attention_format, dense_format, expert_format
from fuelline.predict.planner.physics.rates import find_matmul, usable_math
from fuelline.schema.plan_answers import Floor

if TYPE_CHECKING:
    from fuelline.predict.planner.physics.deployment import Deployment
    from fuelline.schema.models import Model
    from fuelline.schema.precision import Precision


def active_bytes(model: Model, precision: Precision) -> float:
    """Weights that one token reads."""
    attention = model.layers * model.attention_params * attention_format(model, precision).bits
    form = dense_format(precision)
    dense = (
        (model.layers - model.moe_layers) * model.matrices * model.hidden * model.ffn * form.bits
    )
    experts = (
        model.moe_layers
        * model.expert_params
        * (
            model.experts_per_token * expert_format(model, precision).bits
            + model.shared_experts * form.bits
        )
    )
    head = model.vocab * model.hidden * precision.plain_bits
    return (attention + dense + experts + head) / 8


def find_floor(replica: Deployment, context: float, measured: float | None = None) -> Floor:
    """A token for one user when nothing but memory bandwidth counts."""
    weights = active_bytes(replica.model, replica.precision)
    cache = replica.model.kv_values(context) * replica.precision.kv_bytes
    bandwidth = (replica.chip.mem_bytes_per_s or math.nan) * replica.spread.tp
    seconds = (weights + cache) / bandwidth
    return Floor(
        seconds=seconds,
        tokens_per_s=1 / seconds,
        weight_bytes=weights,
        cache_bytes=cache,
        bandwidth_bytes_per_s=bandwidth,
        measured_per_s=measured,
        measured_share=None if measured is None else measured * seconds,
    )


def critical_batch(replica: Deployment) -> float:
    """Sequences at which a decode step's products turn from memory- to math-bound."""
    model, precision, chip = replica.model, replica.precision, replica.chip
    unit = usable_math(chip, precision.math)
    entry = find_matmul(chip, unit, replica.constants)
    peak = chip.peak_flops(unit) or math.nan
    balance = entry.math_share * peak / (entry.memory_share * (chip.mem_bytes_per_s or math.nan))
    per_weight = precision.weight_bytes / 2
    spread = model.experts / model.experts_per_token if model.experts else 1.0
    return balance * per_weight * spread
