"""What training keeps on one chip: weights, gradients, optimiser, activations.

Mixed-precision Adam: 2 + 2 + 12 bytes per parameter; ZeRO stages 1, 2 and 3 spread the last twelve,
the gradients and the weights over the replicas. Activations of a layer in half precision are what
its products, norms and attention read again: 34 bytes per token and hidden value in a GPT (arXiv
2205.05198), two when only the layer's input is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.plan.physics.kernels import ACT_BYTES
from fuelline.plan.training.replicas import held_params, sharded_params
from fuelline.schema.plan.answers import TrainMemory

if TYPE_CHECKING:
    from fuelline.plan.training.step import Schedule
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.estimates import Parallelism
    from fuelline.schema.plan.models import Model

WEIGHT_BYTES, GRADIENT_BYTES, STATE_BYTES = 2.0, 2.0, 12.0
INPUT_BYTES = 2.0
"""Kept of a recomputed layer, for a token and hidden value."""
MASK_BYTES = 2.0
"""Masks and statistics, likewise."""
USABLE_SHARE = 0.92
"""Of the memory; the rest goes to the driver, buffers of the collectives and fragmentation."""
LOGIT_BYTES = 6.0


def count_memory(model: Model, chip: Chip, spread: Parallelism, schedule: Schedule) -> TrainMemory:
    """On the chip that holds most: the first stage keeps activations of all in flight."""
    held, shared = held_params(model, spread), sharded_params(model, spread)
    weights = WEIGHT_BYTES * (shared if schedule.zero >= 3 else held)
    gradients = GRADIENT_BYTES * (shared if schedule.zero >= 2 else held)
    state = STATE_BYTES * (shared if schedule.zero >= 1 else held)
    activations = _activations(model, spread, schedule)
    total = weights + gradients + state + activations
    room = chip.mem_bytes
    return TrainMemory(
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=state,
        activations_bytes=activations,
        total_bytes=total,
        room_bytes=room,
        fits=room is not None and total <= USABLE_SHARE * room,
    )


def _activations(model: Model, spread: Parallelism, schedule: Schedule) -> float:
    tokens = schedule.microbatch * schedule.length / spread.cp
    layers = model.layers / spread.pp
    flying = min(spread.pp, max(schedule.batch / (spread.dp * schedule.microbatch), 1.0))
    whole = _kept_bytes(model)
    full = schedule.recompute == "full"
    kept = INPUT_BYTES * model.hidden if full else whole
    cut = spread.tp if not full or spread.shared_norms else 1
    layer_sum = tokens * kept / cut * layers * flying
    logits = tokens * model.vocab * LOGIT_BYTES / spread.tp
    return layer_sum + tokens * whole / spread.tp + logits


def _kept_bytes(model: Model) -> float:
    """Of a layer and token: inputs of norms and products, and what attention and gates read."""
    heads = model.head_size * (model.heads + 2 * model.kv_heads)
    wide = model.ffn
    if model.experts:
        wide = (model.experts_per_token + model.shared_experts) * model.expert_ffn
    return (
        ACT_BYTES * (5 * model.hidden + heads + model.matrices * wide) + MASK_BYTES * model.hidden
    )
