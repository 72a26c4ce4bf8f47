"""What has to fit into a chip's memory, and how many sequences then fit.

All sizes are per chip. Latent attention and fewer cache heads than chips are not cut by tensor
parallelism: every chip holds them whole, which is counted here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.plan.physics.expert_operators import expert_share
from fuelline.plan.physics.kernels import attention_format, expert_format
from fuelline.schema.plan.estimates import Parallelism

if TYPE_CHECKING:
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

USABLE_SHARE = 0.92
"""Engines leave 5 to 10 % of the memory to the driver and the graphs (TRT-LLM 0.90-0.95, vLLM
0.90)."""
OFFLOADING = ("gpu",)
"""Kinds of chips beside a host's memory: Apple's is the same memory, SRAM machines stream none."""
WORK_SHARE = 0.03
"""At most this share of a small memory."""
WORK_BYTES = 2e9
"""Room for activations, graphs and the collectives' buffers, beside the cache."""


def weight_bytes(model: Model, precision: Precision, spread: Parallelism) -> float:
    """Weights on one chip."""
    attention_bits = attention_format(model, precision).bits
    expert_bits = expert_format(model, precision).bits
    cut = spread.tp * spread.pp
    dense = (model.layers - model.moe_layers) * model.matrices * model.hidden * model.ffn
    shared = model.moe_layers * model.shared_experts * model.expert_params
    sizes = (
        model.layers * model.attention_params * attention_bits / cut
        + (dense + shared) * precision.weight_bits / cut
        + model.embedding_params * precision.plain_bits / cut
    )
    if model.experts:
        share = expert_share(model, spread)
        here = model.moe_layers * share.experts * model.expert_params
        sizes += here * expert_bits / share.cut / spread.pp
    return sizes / 8


def cache_bytes(model: Model, precision: Precision, spread: Parallelism, context: float) -> float:
    """Cache of one sequence of this length on one chip that holds a part of it."""
    copies = 1.0 if model.latent else 1.0 / min(spread.tp, model.kv_heads)
    return model.kv_values(context) * precision.kv_bytes * copies / (spread.pp * spread.cp)


def cache_room(
    model: Model, chip: Chip, precision: Precision, spread: Parallelism, host_share: float = 0.0
) -> float:
    """Bytes left for the cache on one chip; negative if the weights alone do not fit.

    `host_share`: of the weights that are in host memory.
    """
    size = chip.mem_bytes or 0.0
    work = min(WORK_BYTES, WORK_SHARE * size)
    return size * USABLE_SHARE - work - weight_bytes(model, precision, spread) * (1 - host_share)


def most_host_share(model: Model) -> float:
    """All weights but two layers: one that computes and one that is on its way."""
    return max(1 - 2 / model.layers, 0.0)


def host_share_for(
    model: Model, chip: Chip, precision: Precision, spread: Parallelism, cache: float
) -> float | None:
    """The least share of the weights to move out so that this cache fits; None if none does."""
    if chip.kind not in OFFLOADING:
        return None
    lacking = cache - cache_room(model, chip, precision, spread)
    share = max(lacking / weight_bytes(model, precision, spread), 0.0)
    return share if share <= most_host_share(model) else None


def sram_spread(
    model: Model, chip: Chip, precision: Precision, chips: int | None = None
) -> Parallelism | None:
    """Machines without DRAM keep every weight on some chip: layers in a line, a few chips each."""
    if not chip.mem_bytes:
        return None
    needed = math.ceil(weight_bytes(model, precision, Parallelism()) / (0.8 * chip.mem_bytes))
    for tp in range(1, model.heads + 1):
        if model.heads % tp == 0 and (chips or needed) <= tp * model.layers:
            return Parallelism(tp=tp, pp=max(chips // tp, 1) if chips else math.ceil(needed / tp))
    return None
