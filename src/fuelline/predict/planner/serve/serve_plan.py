"""`plan serve`: over chips, degrees and batches, what serves a load within limits at least cost.

Every candidate is a replica whose largest load within the limits is found; replicas are then as
many as the rate needs with head room. Only candidates that are shown get intervals: the search
stays below two seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.predict.planner.check.answer import ENERGY, RATE, STATIC, TPOT, TTFT
from fuelline.predict.planner.physics.deployment import Deployment
from fuelline.predict.planner.physics.exchanges import BUS_GBPS
from fuelline.predict.planner.physics.interval import as_sure_as, estimate
from fuelline.predict.planner.physics.memory import (
    cache_bytes,
    cache_room,
    most_host_share,
    weight_bytes,
)
from fuelline.predict.planner.serve.batch_energy import joule_per_token
from fuelline.predict.planner.serve.expert_load import count_experts
from fuelline.predict.planner.serve.floor import critical_batch, products_limit
from fuelline.predict.planner.serve.serving import Load, arrive
from fuelline.predict.planner.simulation.spares import add_spares
from fuelline.schema.plan_answers import ServeOption
from fuelline.schema.plans import Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fuelline.predict.planner.physics.constants import Constants, Engine
    from fuelline.predict.planner.physics.tally import Tally
    from fuelline.schema.chips import Chip
    from fuelline.schema.models import Model
    from fuelline.schema.plans import Estimate
    from fuelline.schema.precision import Precision

MILLION = 1e6
_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
_DEGREES = (1, 2, 4, 8)
SAME_COST = 1.03
"""Costs that differ by less are the same: the model does not know rates any better."""
BUS_ASSUMED = f"a host bus of {BUS_GBPS:g} GB/s a chip"


class Wish(Struct, frozen=True, kw_only=True):
    """What is asked of a deployment."""

    prompt: float
    output: float
    rate_per_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    headroom: float = 0.2
    """Share of the capacity that is kept for peaks and failures."""
    sequences: float | None = None
    """A fixed number at once instead of the largest that keeps the limits."""
    most_chips: int | None = None
    """In all; None: as many as it takes."""
    offload: bool = False
    """Weights may lie in host memory."""


class Found(Struct, frozen=True, kw_only=True):
    """A candidate with the load that it carries."""

    replica: Deployment
    load: Load
    meets: bool
    replicas: int
    """To have: with head room and spares for a rate, and never more than `most_chips` allow."""
    short: bool = False
    """The rate asked for needs more chips, head room counted, than there may be."""
    wanted: int = 1
    """Replicas that the rate needs with head room and spares, however many are allowed."""

    @property
    def chips(self) -> int:
        """In all."""
        return self.replicas * self.replica.spread.chips

    @property
    def per_second(self) -> float:
        """Output tokens of one replica, all its attention replicas together."""
        return self.load.per_second * self.replica.spread.dp

    @property
    def sequences(self) -> int:
        """Of one replica, all its attention replicas together."""
        return max(round(self.load.sequences * self.replica.spread.dp), 1)

    @property
    def usd_per_hour(self) -> float | None:
        """In all."""
        price = self.replica.chip.usd_per_hour
        return None if price is None else price * self.chips

    def cost(self, wish: Wish) -> float:
        """Of a token: money, or chips where a price is not known."""
        price = self.usd_per_hour
        return (self.chips if price is None else price) / self.served(wish)

    def served(self, wish: Wish) -> float:
        """Output tokens a second that users get: of the rate asked for, or of all replicas."""
        if wish.rate_per_s is None:
            return self.per_second * self.replicas
        asked = wish.rate_per_s * wish.output
        return min(self.per_second * self.replicas * (1 - wish.headroom), asked)


def list_spreads(
    model: Model,
    chip: Chip,
    tp: Sequence[int] | None = None,
    pp: Sequence[int] | None = None,
    ep: Sequence[int] | None = None,
) -> list[Parallelism]:
    """Ways to cut one replica that the model's heads and experts allow; what is given is kept."""
    group = max(chip.scaleup_domain, 8)
    tps = [size for size in (tp or _DEGREES) if tp or size <= group]
    found = [
        Parallelism(tp=t, pp=p)
        for t in tps
        for p in (pp or (1, 2, 4))
        if model.heads % t == 0 and model.layers >= p and (p == 1 or t in (1, 8) or pp)
    ]
    if not model.experts or list(ep or ()) == [1]:
        return found
    if ep:
        return [each for size in ep for each in _with_experts(model, size, tps, pp or (1,))]
    if tp:
        return found
    wide = [size for size in (8, 16, 32, 64) if size <= chip.scaleup_domain]
    return found + [each for size in wide for each in _with_experts(model, size, (1,), pp or (1,))]


def _with_experts(
    model: Model, ep: int, tps: Sequence[int], pps: Sequence[int]
) -> Iterator[Parallelism]:
    """Attention is cut by `tp` and repeated over the rest of the chips that share the experts."""
    for t in tps:
        for p in pps:
            even = ep % t == 0 or t % ep == 0
            if even and model.heads % t == 0 and model.experts % ep == 0 and model.layers >= p:
                yield Parallelism(tp=t, pp=p, dp=max(ep // t, 1), ep=ep)


def candidates(
    model: Model,
    chips: Iterable[Chip],
    precision: Precision,
    spreads: dict[str, list[Parallelism]],
    software: tuple[Engine, Constants],
    *,
    offload: bool = False,
) -> list[Deployment]:
    """Everything that fits; all with `offload`, which makes room as it needs it."""
    engine, constants = software
    return [
        Deployment(
            model=model,
            chip=chip,
            precision=precision,
            spread=spread,
            constants=constants,
            engine=engine,
        )
        for chip in chips
        if chip.mem_bytes_per_s and chip.mem_bytes and chip.peak_flops("bf16")
        for spread in spreads[chip.name]
        if offload or cache_room(model, chip, precision, spread) > 0
    ]


def find_load(replica: Deployment, wish: Wish) -> Found | None:
    """The largest load within the limits; if none is, the smallest, marked."""
    best: tuple[Deployment, Load] | None = None
    first: tuple[Deployment, Load] | None = None
    alone = replica.prefill(1, max(wish.prompt, 1.0))
    for holding, size in _sizes(replica, wish):
        if holding.host_share > 0:
            alone = holding.prefill(1, max(wish.prompt, 1.0))
        now = arrive(holding, size, wish.prompt, wish.output, alone)
        first = first or (holding, now)
        if not keeps(now, wish):
            break
        if best is None or now.per_second > best[1].per_second:
            best = (holding, now)
    chosen = best or first
    return None if chosen is None else settle(*chosen, wish, meets=best is not None)


def _sizes(replica: Deployment, wish: Wish) -> Iterator[tuple[Deployment, float]]:
    """Sequences of an attention replica to try, each with as much in host memory as it needs."""
    context = wish.prompt + wish.output
    most = replica.most(context)
    if wish.offload:
        emptied = replace(replica, host_share=most_host_share(replica.model))
        most = emptied.most(context)
    sizes: Sequence[float] = [*(b for b in _BATCHES if b < most), most]
    if wish.sequences is not None:
        sizes = [wish.sequences / replica.spread.dp]
    for size in sizes:
        holding: Deployment | None = replica
        if wish.offload:
            holding = replica.offloaded(size, context)
        if holding is not None and 0 < size <= max(math.floor(holding.room(context) + 1e-9), 0):
            yield holding, float(size)


def keeps(load: Load, wish: Wish) -> bool:
    """Both limits, where they are given."""
    return (wish.tpot_s is None or load.tpot_s <= wish.tpot_s) and (
        wish.ttft_s is None or load.ttft_s <= wish.ttft_s
    )


def settle(replica: Deployment, load: Load, wish: Wish, *, meets: bool) -> Found:
    """How many replicas the rate needs with head room and spares, within the chips allowed."""
    most = None if wish.most_chips is None else wish.most_chips // replica.spread.chips
    if wish.rate_per_s is None:
        return Found(replica=replica, load=load, meets=meets, replicas=1 if most is None else most)
    usable = load.per_second * replica.spread.dp * (1 - wish.headroom)
    needed = max(math.ceil(wish.rate_per_s * wish.output / usable - 1e-9), 1)
    bought = add_spares(needed, replica.spread.chips)
    return Found(
        replica=replica,
        load=load,
        meets=meets,
        replicas=bought if most is None else min(bought, most),
        short=most is not None and most < needed,
        wanted=bought,
    )


def order(found: Sequence[Found], wish: Wish) -> list[Found]:
    """Those that keep the limits first, then by money for a token, then by chips.

    Of those that cannot carry the rate with the chips allowed, the one that carries most is first.
    """

    def key(each: Found) -> tuple[bool, bool, float, bool, float, int]:
        lacking = -each.served(wish) if each.short else 0.0
        unpriced = each.usd_per_hour is None
        return (not each.meets, each.short, lacking, unpriced, each.cost(wish), each.chips)

    return _simplest_first(sorted(found, key=key), wish)


def _simplest_first(found: list[Found], wish: Wish) -> list[Found]:
    """Of ways on the best chip that cost the same within doubt, the smallest instance is first."""
    if not found or found[0].short:
        return found
    best = found[0]
    alike = [
        each
        for each in found
        if each.replica.chip.name == best.replica.chip.name
        and each.meets == best.meets
        and not each.short
        and each.cost(wish) <= SAME_COST * best.cost(wish)
    ]
    lead = min(alike, key=lambda each: each.replica.spread.chips)
    return [lead, *(each for each in found if each is not lead)]


def best_of_each_chip(found: Sequence[Found]) -> list[Found]:
    """The first of every chip, in order."""
    seen: dict[str, Found] = {}
    for each in found:
        seen.setdefault(each.replica.chip.name, each)
    return list(seen.values())


def describe(found: Found, wish: Wish) -> ServeOption:
    """With intervals, money and energy."""
    replica, load = found.replica, found.load
    context = wish.prompt + wish.output
    price = found.usd_per_hour
    rate = rate_of(found, wish)
    usd = None if price is None else price / 3600 / found.served(wish) * MILLION
    joule = joule_per_token(replica, load, wish.prompt, wish.output)
    return ServeOption(
        chip=replica.chip.name,
        spread=replace(replica.spread),
        replicas=found.replicas,
        chips=found.chips,
        sequences=found.sequences,
        most_sequences=math.floor(replica.room(context) + 1e-9) * replica.spread.dp,
        critical_batch=critical_batch(replica),
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
        joule_per_token_range=energy_range(found, joule),
        precision=replica.precision.name,
        products_limit=products_limit(replica, load.batch),
        batch=load.batch,
        experts=count_experts(replica, load),
        host_share=replica.host_share,
        short=found.short,
        needed_chips=None if wish.rate_per_s is None else found.wanted * replica.spread.chips,
        carries_per_s=found.per_second * found.replicas / wish.output,
    )


def rate_of(found: Found, wish: Wish) -> Estimate:
    """Output of one replica: its requests' tokens over the time that a request runs."""
    tokens = found.load.sequences * found.replica.spread.dp * wish.output
    return _estimate(found, (found.per_second, "tok/s"), found.load.cycle, RATE, work=tokens)


def user_rate(found: Found) -> Estimate:
    """Tokens a second of one user."""
    load = found.load
    return _estimate(found, (1 / load.tpot_s, "tok/s"), load.token(), STATIC, work=1.0)


def per_chip(rate: Estimate, chips: int) -> Estimate:
    """A rate shared out, as sure as the whole."""
    work = None if rate.work is None else rate.work / chips
    low, value, high = (each / chips for each in (rate.low, rate.value, rate.high))
    return replace(rate, low=low, value=value, high=high, work=work)


def _estimate(
    found: Found, value: tuple[float, str], parts: Tally, *kinds: str, work: float | None = None
) -> Estimate:
    """Of these kinds of questions; experts are a reason for doubt of their own."""
    replica = found.replica
    groups = (*kinds, "experts") if replica.model.experts else kinds
    assumed = (BUS_ASSUMED,) if replica.host_share > 0 else ()
    return estimate(
        value, parts.terms(replica.doubt_frac), groups, replica.constants, assumed, work=work
    )


def energy_range(found: Found, joule: float | None) -> Estimate | None:
    """Power is in doubt, and so is the rate that it is spread over; its terms are times."""
    if joule is None:
        return None
    return replace(_estimate(found, (joule, "J/tok"), found.load.cycle, RATE, ENERGY), terms=())
