"""Batches that go in step: one that reads a prompt holds up all others.

Stages of a pipeline pass batches on in turn, and attention replicas that share experts step
together. The steady state and the simulation take what others' prompts cost from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.plan.physics.expert_operators import expert_share

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment


def stalls_for(replica: Deployment, prompts: float, held: float) -> float:
    """Prompts of other batches that hold one up, for every prompt of its own.

    `prompts` come to a batch in a step; `held` sequences run in an attention replica. If few
    prompts come, nearly every prefill holds up all others; if each batch always has one, nobody
    waits for another. Engines that let them start together save a part.
    """
    lanes = 1.0
    if replica.model.experts:
        lanes = expert_share(replica.model, replica.spread)[1]
    together = max(lanes * min(held, 1.0), 1.0) * min(replica.spread.pp, max(held, 1.0))
    share = min(max(prompts, 1e-6), 1.0)
    steps: float = (1 - (1 - share) ** together) / share
    return replica.constants.shares.lockstep_share * (steps - 1)
