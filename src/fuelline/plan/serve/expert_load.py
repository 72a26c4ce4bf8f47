"""What a mixture of experts does with a batch: experts touched, tokens sent, the fullest chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.plan.physics.expert_operators import expert_share, touched_share
from fuelline.plan.physics.kernels import ACT_BYTES
from fuelline.plan.physics.step import SENT_BYTES, fullest
from fuelline.schema.plan.answers import ExpertLoad

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.serve.steady import Load


def count_experts(replica: Deployment, load: Load) -> ExpertLoad | None:
    """Of one decode step; None for a dense model."""
    model = replica.model
    if not model.experts:
        return None
    lanes = expert_share(model, replica.spread)[1]
    tokens = load.batch * max(lanes * min(load.sequences, 1.0), 1.0)
    sent = model.moe_layers * tokens * model.experts_per_token * model.hidden
    spread_out = lanes > 1
    return ExpertLoad(
        tokens=tokens,
        touched_share=touched_share(model.experts, model.experts_per_token, tokens),
        tokens_per_expert=tokens * model.experts_per_token / model.experts,
        all_to_all_bytes=sent * (SENT_BYTES + ACT_BYTES) if spread_out else 0.0,
        all_to_all_s=load.step.scatter,
        imbalance_frac=fullest(replica) - 1 if replica.spread.ep > 1 else 0.0,
        imbalance_s=load.step.uneven,
    )
