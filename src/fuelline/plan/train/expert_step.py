"""What a mixture of experts does in training: tokens of a micro-batch, all-to-all, imbalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.plan.physics.expert_operators import expert_share, touched_share
from fuelline.plan.physics.kernels import ACT_BYTES
from fuelline.plan.physics.step import fullest
from fuelline.schema.plan.answers import ExpertLoad

if TYPE_CHECKING:
    from fuelline.plan.physics.setup import Setup
    from fuelline.plan.train.step import Schedule, Training

PASSES = 4.0
"""Exchanges of a token and layer: to its experts and back, forward and backward."""


def count_experts(setup: Setup, schedule: Schedule, step: Training) -> ExpertLoad | None:
    """Tokens are of a micro-batch, bytes and seconds of a step; None for a dense model."""
    model, spread = setup.model, setup.spread
    if not model.experts:
        return None
    lanes = expert_share(model, spread)[1]
    tokens = schedule.microbatch * schedule.length / spread.cp * lanes
    sent = step.tokens * model.moe_layers * model.experts_per_token * model.hidden * ACT_BYTES
    return ExpertLoad(
        tokens=tokens,
        touched_share=touched_share(model.experts, model.experts_per_token, tokens),
        tokens_per_expert=tokens * model.experts_per_token / model.experts,
        all_to_all_bytes=PASSES * sent if spread.ep > 1 else 0.0,
        all_to_all_s=step.expert_s,
        imbalance_frac=fullest(setup) - 1,
        imbalance_s=step.uneven_s,
    )
