"""The time of one training step: math, traffic, exchanges, bubble; what of them hides behind what.

A step is `micro-batches` passes of forward and backward through a pipeline of stages. Matrix
products cost three forwards (four with full recomputation), flash attention nearly four.
Exchanges of the data-parallel group hide behind backward as far as they fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.predict.planner.physics.exchanges import BUS_GBPS, all_reduce, hidden_part, send
from fuelline.predict.planner.physics.expert_operators import touched_share
from fuelline.predict.planner.physics.kernels import ACT_BYTES
from fuelline.predict.planner.physics.step import add_operators, forward_operators
from fuelline.predict.planner.physics.tally import Tally
from fuelline.predict.planner.physics.work import make_work
from fuelline.schema.chips import GIGA
from fuelline.schema.plans import Slice, Term

if TYPE_CHECKING:
    from fuelline.predict.planner.physics.setup import Setup
    from fuelline.schema.chips import Chip
    from fuelline.schema.models import Model
    from fuelline.schema.plans import Parallelism

BACKWARD_ATTENTION = 2.5 / 0.8
"""Flash attention back against forward: five products for two, each at about 0.8 of the forward's
rate (arXiv 2307.08691 and 2407.08608, figures of forward and backward speed). Far below the peak,
it is not throttled as long products are."""
SCORE_MOVES_BACK = 9.0
"""How often the backward pass moves scores: probabilities, their gradient through dropout and
softmax, and two products that read it."""
NEAR_SHARE = 0.7
"""Of the link inside a domain that exchanges between experts reach."""
NETWORK_SHARE = 0.85
"""Of the network's line rate that gathers of parameters reach."""
POOR_NETWORK_GBPS = 12.5
"""100 Gbit/s a chip, where the catalogue does not know the network."""
FLAT_SHARE = 0.68
"""The same where every member gathers over its own card only."""
OPTIMIZER_BYTES = 28.0
"""Adam in mixed precision reads and writes about this much for a parameter (weights, gradient,
moments)."""


class Schedule(Struct, frozen=True, kw_only=True):
    """How a step is cut in time."""

    batch: float
    """Sequences in a step, all replicas together."""
    length: float
    """Tokens of a sequence."""
    microbatch: float = 1.0
    recompute: str = "selective"
    """`none`, `selective` (attention only) or `full`."""
    interleave: int = 1
    """Chunks of layers a stage holds; more of them shrink the bubble."""
    zero: int = 1
    """ZeRO stage; 3 is FSDP: parameters are gathered for every micro-batch."""
    flat: bool = False
    """Gathers do not use the links inside a host first (DeepSpeed of 2021)."""
    flash: bool = True
    """Attention is one kernel; without, scores go through memory."""
    older_attention: bool = False
    """Attention kernels are not made for this chip."""
    eager: bool = False
    """Norms and activations are kernels of their own."""
    blocking: bool = False
    """Tensor-parallel exchanges are waited for, not cut into pieces that hide behind products."""


class Training(Struct, frozen=True, kw_only=True):
    """A step's parts in seconds."""

    math_s: float
    attention_s: float
    moved_s: float
    tensor_s: float
    """Exposed exchanges of tensor and context parallelism."""
    expert_s: float
    bubble_s: float
    data_s: float
    """Exposed exchanges of data parallelism."""
    optimizer_s: float
    tokens: float
    chips: int
    uneven_s: float = 0.0
    """Products of the fullest expert-parallel chip beyond those of the mean."""

    @property
    def seconds(self) -> float:
        """The step."""
        return (
            self.math_s
            + self.attention_s
            + self.moved_s
            + self.tensor_s
            + self.expert_s
            + self.bubble_s
            + self.data_s
            + self.optimizer_s
            + self.uneven_s
        )

    @property
    def tokens_per_s(self) -> float:
        """Of all chips."""
        return self.tokens / self.seconds

    def terms(self, doubt: float = 0.08) -> tuple[Term, ...]:
        """With names, limits and doubts; nothing that is zero."""
        rows = (
            ("matrix math", self.math_s, "math", doubt),
            ("attention math", self.attention_s, "math", 2 * doubt),
            ("move activations", self.moved_s, "memory bandwidth", 2 * doubt),
            ("tensor-parallel exchange", self.tensor_s, "interconnect", 0.35),
            ("all-to-all of experts", self.expert_s, "interconnect", 0.5),
            ("fullest expert chip", self.uneven_s, "imbalance", 0.5),
            ("pipeline bubble", self.bubble_s, "pipeline", 0.25),
            ("data-parallel exchange", self.data_s, "network", 0.35),
            ("optimizer", self.optimizer_s, "memory bandwidth", 0.3),
        )
        return tuple(
            Term(name=name, seconds=seconds, limit=limit, doubt_frac=each)
            for name, seconds, limit, each in rows
            if seconds > 0
        )


def model_flops(model: Model, length: float, *, causal: bool = False) -> float:
    """FLOPs a token of forward and backward: six a weight, twelve a pair and head value.

    The convention of PaLM and Megatron counts all pairs; `causal` counts the half that is needed.
    """
    pairs = length / 2 if causal else length
    width = model.heads * (
        model.head_size if not model.latent else (model.nope_dim + model.rope_dim + model.v_dim) / 2
    )
    seen = pairs
    if model.window:
        local = model.layers - model.global_layers
        seen = (model.global_layers * pairs + local * min(pairs, model.window)) / model.layers
    return 6 * model.active_params + 12 * model.layers * width * seen


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
        data_s=_data_exchange(setup, schedule, micro, stage),
        optimizer_s=_optimizer(setup),
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
    """Of one forward: tokens go to their experts and back, once a layer; one copy a host."""
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


def _data_exchange(setup: Setup, schedule: Schedule, micro: float, stage: float) -> float:
    """What of gathers and reductions over replicas does not hide behind a micro-batch's math."""
    rate = group_gbps(setup.chip, setup.spread, flat=schedule.flat) * GIGA
    held = held_params(setup.model, setup.spread)
    if schedule.zero >= 3:
        return micro * hidden_part(stage, 3 * 2 * held / rate)
    return hidden_part(stage, 2 * 2 * held / rate)


def _optimizer(setup: Setup) -> float:
    own = sharded_params(setup.model, setup.spread) * setup.spread.cp
    shares = setup.constants.shares
    return own * OPTIMIZER_BYTES / (setup.bandwidth * shares.move_share)
