"""What data-parallel replicas hold and exchange: parameters, gathers, reductions, the optimizer.

Replicas hold the same parameters; sharding divides them over those. Experts that are spread have
fewer copies than the rest. Exchanges hide behind backward as far as they fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.plan.physics.exchanges import BUS_GBPS, hidden_part
from fuelline.schema.plan.chips import GIGA

if TYPE_CHECKING:
    from fuelline.plan.physics.setup import Setup
    from fuelline.plan.training.step import Schedule
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.estimates import Parallelism
    from fuelline.schema.plan.models import Model

NETWORK_SHARE = 0.85
"""Of the network's line rate that gathers of parameters reach."""
POOR_NETWORK_GBPS = 12.5
"""100 Gbit/s a chip, where the catalogue does not know the network."""
FLAT_SHARE = 0.68
"""The same where every member gathers over its own card only."""
OPTIMIZER_BYTES = 28.0
"""Adam in mixed precision reads and writes about this much for a parameter (weights, gradient,
moments)."""


def held_parts(model: Model, spread: Parallelism) -> tuple[tuple[float, float], ...]:
    """Parameters on one chip before any sharding, each with the chips that hold the same ones.

    Experts that are spread have fewer copies than the rest: sharding divides them by those only.
    """
    copies = float(spread.dp * spread.cp)
    if not model.experts or spread.ep <= 1:
        return ((model.params / (spread.tp * spread.pp), copies),)
    experts = model.moe_layers * model.experts * model.expert_params
    rest = model.params - experts
    return (
        (rest / (spread.tp * spread.pp), copies),
        (experts / (spread.ep * spread.pp), max(copies * spread.tp / spread.ep, 1.0)),
    )


def held_params(model: Model, spread: Parallelism) -> float:
    """Parameters on one chip before any sharding over replicas."""
    return sum(held for held, _ in held_parts(model, spread))


def sharded_params(model: Model, spread: Parallelism) -> float:
    """Parameters on one chip when all that hold the same ones share them out."""
    return sum(held / copies for held, copies in held_parts(model, spread))


def group_gbps(chip: Chip, spread: Parallelism, *, flat: bool = False) -> float:
    """What the data-parallel group moves per member: members in one host share all its cards."""
    members = spread.dp * spread.cp
    if members <= 1:
        return float("inf")
    inside = max(min(chip.scaleup_domain // spread.tp, members), 1)
    if members <= inside:
        return (chip.scaleup_gbps or chip.scaleout_gbps or BUS_GBPS) * 0.8
    network = (chip.scaleout_gbps or POOR_NETWORK_GBPS) * NETWORK_SHARE
    if flat:
        return (chip.scaleout_gbps or POOR_NETWORK_GBPS) * FLAT_SHARE
    return min(network * inside, (chip.scaleup_gbps or BUS_GBPS) * 0.8)


def exchange_replicas(setup: Setup, schedule: Schedule, micro: float, stage: float) -> float:
    """What of gathers and reductions over replicas does not hide behind a micro-batch's math."""
    rate = group_gbps(setup.chip, setup.spread, flat=schedule.flat) * GIGA
    held = held_params(setup.model, setup.spread)
    if schedule.zero >= 3:
        return micro * hidden_part(stage, 3 * 2 * held / rate)
    return hidden_part(stage, 2 * 2 * held / rate)


def update_weights(setup: Setup) -> float:
    """Seconds of the optimizer on one chip."""
    own = sharded_params(setup.model, setup.spread) * setup.spread.cp
    shares = setup.constants.shares
    return own * OPTIMIZER_BYTES / (setup.bandwidth * shares.move_share)
