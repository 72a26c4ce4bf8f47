"""The time of one training step: math, traffic, exchanges, bubble; what of them hides behind what.

A step is `micro-batches` passes of forward and backward through a pipeline of stages. Matrix
products cost three forwards (four with full recomputation), flash attention nearly four.
Exchanges of the data-parallel group hide behind backward as far as they fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.plan.physics.exchanges import BUS_GBPS, all_reduce, send
from fuelline.plan.physics.expert_operators import touched_share
from fuelline.plan.physics.kernels import ACT_BYTES
from fuelline.plan.physics.step import add_operators, forward_operators
from fuelline.plan.physics.tally import Tally
from fuelline.plan.physics.work import make_work
from fuelline.plan.training.replicas import NETWORK_SHARE, exchange_replicas, update_weights
from fuelline.plan.training.step import Training
from fuelline.schema.plan.chips import GIGA
from fuelline.schema.plan.estimates import Slice

if TYPE_CHECKING:
    from fuelline.plan.physics.setup import Setup
    from fuelline.plan.training.step import Schedule
    from fuelline.schema.plan.estimates import Parallelism

BACKWARD_ATTENTION = 2.5 / 0.8
"""Flash attention back against forward: five products for two, each at about 0.8 of the forward's
rate (arXiv 2307.08691 and 2407.08608, figures of forward and backward speed). Far below the peak,
it is not throttled as long products are."""
SCORE_MOVES_BACK = 9.0
"""How often the backward pass moves scores: probabilities, their gradient through dropout and
softmax, and two products that read it."""
NEAR_SHARE = 0.7
"""Of the link inside a domain that exchanges between experts reach."""


def time_training(setup: Setup, schedule: Schedule) -> Training:
    """One step."""
    spread = setup.spread
    micro = max(schedule.batch / (spread.dp * schedule.microbatch), 1.0)
    passed = _micro_batch(setup, schedule, min(schedule.microbatch, schedule.batch / spread.dp))
    stage = passed.seconds / spread.pp
    each = micro / spread.pp
    return Training(
        math_s=each * passed.math_s,
        attention_s=each * passed.attention_s,
        moved_s=each * passed.moved_s,
        tensor_s=each * passed.tensor_s + _hops(setup, schedule, micro),
        expert_s=each * passed.expert_s,
        uneven_s=each * passed.uneven_s,
        bubble_s=(spread.pp - 1) / schedule.interleave * stage,
        data_s=exchange_replicas(setup, schedule, micro, stage),
        optimizer_s=update_weights(setup),
        tokens=schedule.batch * schedule.length,
        chips=spread.chips,
    )


def _micro_batch(setup: Setup, schedule: Schedule, size: float) -> Training:
    """Forward and backward of one micro-batch through all layers; no bubble, no replicas."""
    shares = setup.constants.shares
    work = make_work([Slice(size / setup.spread.cp, schedule.length, 0)], all_logits=True)
    forward = Tally()
    add_operators(forward, setup, forward_operators(setup, work))
    full, again = _passes(schedule.recompute)
    sustained = setup.rates(setup.unit(setup.precision.math)).train_share
    attention = (forward.attention_math + forward.cache) * (1 + again + BACKWARD_ATTENTION)
    moved = forward.moved * full * (shares.eager_moves if schedule.eager else 1.0)
    side = _side_traffic(setup, schedule, size, again) / (shares.move_share * setup.bandwidth)
    return Training(
        math_s=(forward.math + forward.weights) * full / sustained,
        attention_s=attention / (shares.older_attention_share if schedule.older_attention else 1.0),
        moved_s=moved + side,
        tensor_s=_tensor_exchange(setup, schedule, size) * _exchanges(setup.spread, full),
        expert_s=_expert_exchange(setup, schedule, size) * 2 * shares.expert_exposed_share,
        uneven_s=forward.uneven * full / sustained,
        bubble_s=0.0,
        data_s=0.0,
        optimizer_s=0.0,
        tokens=size * schedule.length,
        chips=setup.spread.chips,
    )


def _hops(setup: Setup, schedule: Schedule, micro: float) -> float:
    """Activations and their gradients between stages, the part that shows."""
    if setup.spread.pp == 1:
        return 0.0
    tokens = schedule.microbatch * schedule.length / setup.spread.cp / setup.spread.tp
    hop = send(setup.chip, setup.constants, ACT_BYTES * tokens * setup.model.hidden, far=True)
    return 2 * micro * hop * schedule.interleave * setup.constants.shares.exposed_share


def _side_traffic(setup: Setup, schedule: Schedule, size: float, again: float) -> float:
    """Bytes of logits, and of attention scores where no single kernel keeps them on the chip."""
    model, spread, shares = setup.model, setup.spread, setup.constants.shares
    tokens = size * schedule.length / spread.cp
    logits = tokens * model.vocab / spread.tp * shares.logit_bytes
    if schedule.flash:
        return logits
    scores = model.layers * model.heads / spread.tp * tokens * schedule.length
    moves = (1 + again) * shares.score_moves + SCORE_MOVES_BACK
    return logits + scores * ACT_BYTES * moves


def _passes(recompute: str) -> tuple[float, float]:
    """Forwards that a step's matmuls cost, and extra forwards of attention."""
    return (4.0, 1.0) if recompute == "full" else (3.0, 1.0 if recompute == "selective" else 0.0)


def _tensor_exchange(setup: Setup, schedule: Schedule, size: float) -> float:
    """Of one forward: two sums a layer over the tensor-parallel group, the part that shows."""
    model, spread = setup.model, setup.spread
    wide = ACT_BYTES * size * schedule.length * model.hidden / spread.cp
    each = all_reduce(setup.chip, setup.constants, spread.tp, wide, nccl=True)
    shown = 1.0 if schedule.blocking else setup.constants.shares.exposed_share
    return 2 * model.layers * each * shown


def _exchanges(spread: Parallelism, full: float) -> float:
    """Sums of a forward that a step costs: one forward, one back, one more if recomputed.

    Where norms are cut as well, backward gathers each product's input again: half a sum.
    """
    return full - 1 + (0.5 if spread.shared_norms else 0.0)


def _expert_exchange(setup: Setup, schedule: Schedule, size: float) -> float:
    """Of one forward: tokens go to their experts and back, once per layer; one copy per host."""
    model, spread, chip = setup.model, setup.spread, setup.chip
    if not model.experts or spread.ep <= 1:
        return 0.0
    each = size * schedule.length / spread.cp / spread.tp * model.hidden * ACT_BYTES
    inside = min(chip.scaleup_domain, spread.ep)
    hosts = spread.ep / inside
    reached = hosts * touched_share(hosts, 1.0, model.experts_per_token) if hosts > 1 else 1.0
    near = (chip.scaleup_gbps or BUS_GBPS) * GIGA * NEAR_SHARE
    far = (chip.scaleout_gbps or BUS_GBPS) * GIGA * NETWORK_SHARE
    near_s = each * model.experts_per_token / near
    return 2 * model.moe_layers * max(near_s, each * (reached - reached / hosts) / far)
