"""Prefill and decode apart: chips of each pool, what moving the cache costs, does it pay?

Apart, no token waits for somebody's prompt, so decode may run at the largest batch that the limit
on a token allows; but prompts are read on chips that then never decode, and the cache has to
travel.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.plan.physics.exchanges import BUS_GBPS
from fuelline.plan.physics.interval import as_sure_as
from fuelline.plan.serving.describing import rate_of
from fuelline.schema.plan.answers import Pools
from fuelline.schema.plan.chips import GIGA
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.serving.search import ServeCandidate, Wish

WORTH = 0.95
"""Apart must need this share of the chips or less to be called a gain: two pools are harder to
run."""


def split_pools(found: ServeCandidate, wish: Wish) -> Pools:
    """For the rate asked for, or for one request a second."""
    replica, rate = found.replica, wish.rate_per_s or 1.0
    prefill_s = replica.prefill(1, max(wish.prompt, 1.0)).seconds
    usable = 1 - wish.headroom
    prefill = rate * prefill_s * replica.spread.shards / usable
    decode = _decode_chips(replica, wish, rate) / usable
    each = found.load.per_second * replica.spread.dp
    together = rate * wish.output / each * replica.spread.chips / usable
    moved = replica.model.kv_values(wish.prompt) * replica.precision.kv_bytes
    link = (replica.chip.scaleout_gbps or BUS_GBPS) * GIGA * replica.spread.tp
    transfer = moved / link
    pays = prefill + decode <= WORTH * together
    return Pools(
        prefill_chips=prefill,
        decode_chips=decode,
        together_chips=together,
        ratio=prefill / decode,
        transfer_bytes=moved,
        transfer_s=transfer,
        pays=pays,
        why=_why(prefill + decode, together, transfer, prefill_s, pays=pays),
        together_range=as_sure_as(rate_of(found, wish), together, "chips"),
        apart_range=as_sure_as(rate_of(found, wish), prefill + decode, "chips"),
        rate_per_s=rate,
    )


def _decode_chips(replica: Deployment, wish: Wish, rate: float) -> float:
    """Chips that only decode, at the largest batch within the limit on a token."""
    context = wish.prompt + wish.output / 2
    most = min(replica.room(wish.prompt + wish.output), replica.engine.most_sequences)
    sequences = max(most, 1.0)
    while sequences > 1 and wish.tpot_s is not None:
        if replica.decode(sequences, context).seconds <= wish.tpot_s:
            break
        sequences *= 0.8
    sequences = max(sequences, 1.0)
    per_second = sequences / replica.decode(sequences, context).seconds
    return rate * wish.output / per_second * replica.spread.shards


def _why(apart: float, together: float, transfer_s: float, prefill_s: float, *, pays: bool) -> str:
    saved = 1 - apart / together
    if pays:
        return (
            f"separate pools need {percent(saved)} fewer chips: decoding no longer waits for "
            "prompts, and the cache "
            f"travels in {duration(transfer_s)}"
        )
    if transfer_s > prefill_s:
        return "moving the cache takes longer than computing it"
    if math.isclose(saved, 0, abs_tol=1 - WORTH):
        return "prompts are short against outputs, so little waiting is saved"
    return (
        f"separate pools need {percent(-saved)} more chips"
        if saved < 0
        else "the gain is below five per cent"
    )
