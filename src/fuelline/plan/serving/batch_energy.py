"""Energy of a token: power at the bandwidth and math that a load uses, over its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.plan.physics.energy import power_w
from fuelline.plan.physics.operators import list_operators
from fuelline.plan.physics.work import make_work
from fuelline.schema.plan.estimates import Slice

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.serving.steady import Load


def count_batch(
    replica: Deployment, sequences: float, prompt: float, output: float
) -> tuple[float, float]:
    """Bytes and FLOPs of a whole batch on one chip."""
    moved = flops = 0.0
    for slices, times in (
        ([Slice(sequences, max(prompt, 1), 0)], 1.0),
        ([Slice(sequences, 1, prompt + output / 2)], output),
    ):
        for op in list_operators(
            replica.model, replica.precision, make_work(slices), replica.spread
        ):
            moved += times * op.count * (op.weight_bytes + op.moved_bytes)
            flops += times * op.count * op.flops
    return moved / replica.spread.pp, flops / replica.spread.pp


def batch_power_w(
    replica: Deployment, sequences: float, prompt: float, output: float, seconds: float
) -> float | None:
    """Of one chip while a batch runs; None if its power limit is not known."""
    moved, flops = count_batch(replica, sequences, prompt, output)
    return power_w(replica.chip, moved / seconds, flops / seconds)


def joule_per_token(replica: Deployment, load: Load, prompt: float, output: float) -> float | None:
    """All chips of the replica, for one output token."""
    moved, flops = count_batch(replica, load.batch, prompt, output)
    each_s = load.batch * output / load.per_second  # stages work on several batches meanwhile
    watts = power_w(replica.chip, moved / each_s, flops / each_s)
    return None if watts is None else watts * replica.spread.shards / load.per_second
