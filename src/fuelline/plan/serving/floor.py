"""The latency floor and the critical batch: what follows from bytes and rates alone.

The floor counts every byte that a token must read once, at the sheet's bandwidth of all chips that
can read it at the same time; nothing that the step model predicts may be below it. The critical
batch is read off the step model itself, so that a table of steps and a mark in a plot agree.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from fuelline.plan.physics.exchanges import GIGA, host_gbps
from fuelline.plan.physics.expert_operators import expert_share
from fuelline.plan.physics.kernels import attention_format, dense_format, expert_format
from fuelline.schema.plan.answers import Floor

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.schema.plan.estimates import Parallelism, TermLimit
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

MOST_SEQUENCES = 2**20
"""Beyond this many in one step nobody asks where math begins to limit."""


class Active(Struct, frozen=True, kw_only=True):
    """Weights that one token reads, in bytes."""

    common: float
    """Attention, dense layers, shared experts, output projection: cut by `tp`."""
    chosen: float
    """Experts that the token was routed to."""

    @property
    def total(self) -> float:
        """Of all chips together."""
        return self.common + self.chosen


def active_bytes(model: Model, precision: Precision) -> Active:
    """Weights that one token reads."""
    attention = model.layers * model.attention_params * attention_format(model, precision).bits
    form = dense_format(precision)
    dense = (
        (model.layers - model.moe_layers) * model.matrices * model.hidden * model.ffn * form.bits
    )
    each = model.moe_layers * model.expert_params
    shared = each * model.shared_experts * form.bits
    head = model.vocab * model.hidden * precision.plain_bits
    chosen = each * model.experts_per_token * expert_format(model, precision).bits
    return Active(common=(attention + dense + shared + head) / 8, chosen=chosen / 8)


def expert_chips(model: Model, spread: Parallelism) -> float:
    """Chips that can read one token's experts at the same time: each expert is on one of them."""
    if not model.experts or spread.ep <= 1:
        return float(spread.tp)
    return min(spread.ep, model.experts_per_token) * expert_share(model, spread).cut


def find_floor(replica: Deployment, context: float, measured: float | None = None) -> Floor:
    """A token for one user when nothing but memory bandwidth counts."""
    model, spread = replica.model, replica.spread
    active = active_bytes(model, replica.precision)
    cache = model.kv_values(context) * replica.precision.kv_bytes
    spread_over = expert_chips(model, spread)
    seconds = (active.common + cache / spread.cp) / (replica.bandwidth * spread.tp)
    seconds += active.chosen / (replica.bandwidth * spread_over)
    if replica.host_share > 0:  # what is in host memory has to cross the bus of its chip
        pulled = replica.host_share * (active.common / spread.tp + active.chosen / spread_over)
        seconds = max(seconds, pulled / (host_gbps(replica.chip) * GIGA))
    return Floor(
        origin=replica.chip.origin,
        seconds=seconds,
        tokens_per_s=1 / seconds,
        weight_bytes=active.total,
        cache_bytes=cache,
        bandwidth_bytes_per_s=(active.total + cache) / seconds,
        measured_per_s=measured,
        measured_share=None if measured is None else measured * seconds,
        chips=spread.tp * spread.cp,
        expert_bytes=active.chosen,
        expert_chips=math.ceil(spread_over) if model.experts else 0,
    )


def critical_batch(replica: Deployment) -> float | None:
    """Sequences of the instance from which a decode step's products are limited by math.

    None if no sensible number is. Stages and attention replicas hold different sequences.
    """
    if not _is_math(replica, MOST_SEQUENCES):
        return None
    low, high = 0.0, 1.0
    while not _is_math(replica, high):
        low, high = high, 2 * high
    while high - low > max(0.005 * high, 0.5):
        middle = (low + high) / 2
        low, high = (low, middle) if _is_math(replica, middle) else (middle, high)
    return high * replica.spread.pp * replica.spread.dp


def _is_math(replica: Deployment, sequences: float) -> bool:
    return products_limit(replica, sequences) == "math"


def products_limit(replica: Deployment, sequences: float) -> TermLimit:
    """What limits the products of a decode step with this many sequences in it."""
    step = replica.decode(sequences, 1.0)
    return "math" if step.math > step.weights else "memory bandwidth"
