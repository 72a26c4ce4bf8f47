"""What has to fit into a chip's memory, and how many sequences then fit.

All sizes are per chip. Latent attention and fewer cache heads than chips are not cut by tensor
parallelism: every chip holds them whole, which is counted here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.predict.planner.physics.expert_operators import expert_share
from fuelline.predict.planner.physics.kernels import attention_format, expert_format
from fuelline.schema.plans import Parallelism

if TYPE_CHECKING:
    from fuelline.schema.chips import Chip
    from fuelline.schema.models import Model
    from fuelline.schema.precision import Precision

USABLE_SHARE = 0.92
"""Engines leave 5 to 10 % of the memory to the driver and the graphs (TRT-LLM 0.90-0.95, vLLM
0.90)."""
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
        here, _, width = expert_share(model, spread)
        sizes += model.moe_layers * here * model.expert_params * expert_bits / width / spread.pp
    return sizes / 8


def cache_bytes(model: Model, precision: Precision, spread: Parallelism, context: float) -> float:
    """Cache of one sequence of this length on one chip that holds a part of it."""
    copies = 1.0 if model.latent else 1.0 / min(spread.tp, model.kv_heads)
    return model.kv_values(context) * precision.kv_bytes * copies / spread.pp


def cache_room(model: Model, chip: Chip, precision: Precision, spread: Parallelism) -> float:
    """Bytes left for the cache on one chip; negative if the weights alone do not fit."""
    size = chip.mem_bytes or 0.0
    work = min(WORK_BYTES, WORK_SHARE * size)
    return size * USABLE_SHARE - work - weight_bytes(model, precision, spread)


def most_sequences(
    model: Model, chip: Chip, precision: Precision, spread: Parallelism, context: float
) -> float:
    """Sequences of this length that one replica (tp x pp chips) can hold at once."""
    room = cache_room(model, chip, precision, spread)
    return max(room, 0.0) / max(cache_bytes(model, precision, spread, context), 1e-9)


def sram_spread(
    model: Model, chip: Chip, precision: Precision, chips: int | None = None
) -> Parallelism | None:
    """Machines without DRAM keep every weight on some chip: layers in a line, a few chips each."""
    if not chip.mem_bytes:
        return None
    needed = math.ceil(weight_bytes(model, precision, Parallelism()) / (0.8 * chip.mem_bytes))
    tp = max(round((chips or needed) / model.layers), 1)
    return Parallelism(tp=tp, pp=math.ceil((chips or needed) / tp))
