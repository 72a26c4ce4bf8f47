"""What is shown of one way to serve: intervals, their terms, money, energy, experts.

`plan serve` and `plan chips` both answer from here, so they cannot differ. The terms of every
time sum to it, and those of a rate to the time that its tokens take.

Also here: what a mixture of experts does with a batch: experts touched, tokens sent, the fullest
chip.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.physics.exchanges import BUS_GBPS
from fuelline.plan.physics.expert_operators import expert_share, touched_share
from fuelline.plan.physics.interval import (
    ENERGY,
    RATE,
    STATIC,
    TPOT,
    TTFT,
    as_sure_as,
    estimate,
    interval_ratio,
)
from fuelline.plan.physics.kernels import ACT_BYTES
from fuelline.plan.physics.memory import cache_bytes, weight_bytes
from fuelline.plan.physics.step import SENT_BYTES, fullest
from fuelline.plan.physics.tally import Tally
from fuelline.plan.serving.batch_energy import joule_per_token
from fuelline.plan.serving.floor import critical_batch, products_limit
from fuelline.schema.plan.answers import ExpertLoad, ServeOption
from fuelline.schema.plan.estimates import PLAN_LEVEL, Estimate

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.serving.search import ServeCandidate, Wish
    from fuelline.plan.serving.steady import Load


MILLION = 1e6
BUS_ASSUMED = f"a host bus of {BUS_GBPS:g} GB/s per chip"


def describe(found: ServeCandidate, wish: Wish) -> ServeOption:
    """With intervals, money and energy."""
    replica, load = found.replica, found.load
    context = wish.prompt + wish.output
    price = found.usd_per_hour
    rate = rate_of(found, wish)
    usd = None if price is None else price / 3600 / found.served(wish) * MILLION
    critical = critical_batch(replica)
    joule = joule_per_token(replica, load, wish.prompt, wish.output)
    return ServeOption(
        chip=replica.chip.name,
        spread=replace(replica.spread),
        replicas=found.replicas,
        chips=found.chips,
        sequences=found.sequences,
        most_sequences=math.floor(replica.room(context) + 1e-9) * replica.spread.dp,
        critical_batch=critical,
        rate_tokens_per_s=rate,
        tpot_s=_estimate(found, (load.tpot_s, "s"), load.token(), TPOT),
        ttft_s=_estimate(found, (load.ttft_s, "s"), load.first(), TTFT),
        prefill_s=load.alone.seconds,
        exchange_share=load.step.between_chips / load.step.seconds,
        usd_per_mtoken=usd,
        usd_per_hour=price,
        joule_per_token=joule,
        weight_bytes_per_chip=weight_bytes(replica.model, replica.precision, replica.spread),
        cache_bytes_per_sequence=cache_bytes(
            replica.model, replica.precision, replica.spread, context
        ),
        meets=found.meets,
        usd_per_mtoken_range=as_sure_as(rate, usd, "$/Mtok"),
        joule_per_token_range=_energy_range(found, joule),
        precision=replica.precision.name,
        products_limit=products_limit(replica, load.batch),
        batch=load.batch,
        experts=count_experts(replica, load),
        host_share=replica.host_share,
        short=found.short,
        needed_chips=None if wish.rate_per_s is None else found.wanted * replica.spread.chips,
        carries_per_s=found.per_second * found.replicas / wish.output,
        critical_batch_range=None if critical is None else _critical_range(replica, critical),
    )


def _critical_range(replica: Deployment, sequences: float) -> Estimate:
    """A ratio of two rates, and both are in doubt."""
    both = Tally()
    both.math = both.weights = 1.0
    doubts = (term.doubt_frac for term in both.terms(replica.doubt_frac))
    ratio = interval_ratio(math.hypot(*doubts))
    return Estimate(
        value=sequences,
        low=sequences / ratio,
        high=sequences * ratio,
        level=PLAN_LEVEL,
        unit="sequences",
        limit="math",
    )


def rate_of(found: ServeCandidate, wish: Wish) -> Estimate:
    """Output of one replica: its requests' tokens over the time that a request runs."""
    tokens = found.load.sequences * found.replica.spread.dp * wish.output
    return _estimate(found, (found.per_second, "tok/s"), found.load.cycle, RATE, work=tokens)


def user_rate(found: ServeCandidate) -> Estimate:
    """Tokens a second of one user."""
    load = found.load
    return _estimate(found, (1 / load.tpot_s, "tok/s"), load.token(), STATIC, work=1.0)


def per_chip(rate: Estimate, chips: int) -> Estimate:
    """A rate shared out, as sure as the whole."""
    work = None if rate.work is None else rate.work / chips
    low, value, high = (each / chips for each in (rate.low, rate.value, rate.high))
    return replace(rate, low=low, value=value, high=high, work=work)


def _estimate(
    found: ServeCandidate,
    value: tuple[float, str],
    parts: Tally,
    *kinds: str,
    work: float | None = None,
) -> Estimate:
    """Of these kinds of questions; experts are a reason for doubt of their own."""
    replica = found.replica
    groups = (*kinds, "experts") if replica.model.experts else kinds
    assumed = (BUS_ASSUMED,) if replica.host_share > 0 and replica.chip.host_gbps is None else ()
    return estimate(
        value, parts.terms(replica.doubt_frac), groups, replica.constants, assumed, work=work
    )


def _energy_range(found: ServeCandidate, joule: float | None) -> Estimate | None:
    """Power is in doubt, and so is the rate that it is spread over; its terms are times."""
    if joule is None:
        return None
    return replace(_estimate(found, (joule, "J/tok"), found.load.cycle, RATE, ENERGY), terms=())


def count_experts(replica: Deployment, load: Load) -> ExpertLoad | None:
    """Of one decode step; None for a dense model."""
    model = replica.model
    if not model.experts:
        return None
    lanes = expert_share(model, replica.spread).replicas
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
