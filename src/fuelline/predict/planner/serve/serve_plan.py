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

from fuelline.predict.planner.check.answer import ENERGY, RATE, TPOT, TTFT
from fuelline.predict.planner.physics.deployment import Deployment
from fuelline.predict.planner.physics.interval import as_sure_as, estimate
from fuelline.predict.planner.physics.memory import cache_bytes, cache_room, weight_bytes
from fuelline.predict.planner.serve.batch_energy import joule_per_token
from fuelline.predict.planner.serve.floor import critical_batch
from fuelline.predict.planner.serve.serving import Load, arrive
from fuelline.schema.plan_answers import ServeOption
from fuelline.schema.plans import Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fuelline.predict.planner.physics.constants import Constants, Engine
    from fuelline.schema.chips import Chip
    from fuelline.schema.models import Model
    from fuelline.schema.plans import Estimate, Term
    from fuelline.schema.precision import Precision

MILLION = 1e6
_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
_DEGREES = (1, 2, 4, 8)


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


class Found(Struct, frozen=True, kw_only=True):
    """A candidate with the load that it carries."""

    replica: Deployment
    load: Load
    meets: bool
    replicas: int

    @property
    def chips(self) -> int:
        """In all."""
        return self.replicas * self.replica.spread.chips

    @property
    def usd_per_hour(self) -> float | None:
        """In all."""
        price = self.replica.chip.usd_per_hour
        return None if price is None else price * self.chips


def list_spreads(
    model: Model,
    chip: Chip,
    tp: Sequence[int] | None = None,
    pp: Sequence[int] | None = None,
    ep: Sequence[int] | None = None,
) -> list[Parallelism]:
    """Ways to cut one replica that the model's heads allow."""
    group = max(chip.scaleup_domain, 8)
    tps = [size for size in (tp or _DEGREES) if tp or size <= group]
    found = [
        Parallelism(tp=t, pp=p)
        for t in tps
        for p in (pp or (1, 2, 4))
        if model.heads % t == 0 and model.layers >= p and (p == 1 or t in (1, 8) or pp)
    ]
    if not model.experts or (tp and not ep):
        return found
    wide = ep or [size for size in (8, 16, 32, 64) if size <= chip.scaleup_domain]
    spread = [Parallelism(tp=1, dp=size, ep=size) for size in wide if model.experts % size == 0]
    if ep:
        inside = [Parallelism(tp=t, ep=t) for t in (tp or ()) if t in ep and model.experts % t == 0]
        return inside or spread
    return found + spread


def candidates(
    model: Model,
    chips: Iterable[Chip],
    precision: Precision,
    spreads: dict[str, list[Parallelism]],
    software: tuple[Engine, Constants],
) -> list[Deployment]:
    """Everything that fits."""
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
        if cache_room(model, chip, precision, spread) > 0
    ]


def find_load(replica: Deployment, wish: Wish) -> Found | None:
    """The largest load within the limits; if none is, the smallest, marked."""
    room = replica.room(wish.prompt + wish.output)
    if room < 1:
        return None
    best: Load | None = None
    first: Load | None = None
    sizes = [wish.sequences] if wish.sequences else [*(b for b in _BATCHES if b < room), room]
    alone = replica.prefill(1, max(wish.prompt, 1.0))
    most = min(room, replica.engine.most_sequences)
    for size in sizes:
        now = arrive(replica, min(size, most), wish.prompt, wish.output, alone)
        first = first or now
        if not keeps(now, wish):
            break
        if best is None or now.per_second > best.per_second:
            best = now
    chosen = best or first
    return None if chosen is None else settle(replica, chosen, wish, meets=best is not None)


def keeps(load: Load, wish: Wish) -> bool:
    """Both limits, where they are given."""
    return (wish.tpot_s is None or load.tpot_s <= wish.tpot_s) and (
        wish.ttft_s is None or load.ttft_s <= wish.ttft_s
    )


def settle(replica: Deployment, load: Load, wish: Wish, *, meets: bool) -> Found:
    """How many replicas the rate needs."""
    count = 1
    if wish.rate_per_s is not None:
        usable = load.per_second * replica.spread.dp * (1 - wish.headroom)
        count = max(math.ceil(wish.rate_per_s * wish.output / usable - 1e-9), 1)
    return Found(replica=replica, load=load, meets=meets, replicas=count)


def order(found: Sequence[Found], wish: Wish) -> list[Found]:
    """Those that keep the limits first, then by money for a token, then by chips."""

    def key(each: Found) -> tuple[bool, bool, float, int]:
        price = each.usd_per_hour
        output = each.load.per_second * each.replica.spread.dp * each.replicas
        if wish.rate_per_s is not None:
            output = wish.rate_per_s * wish.output
        cost = (price if price is not None else each.chips) / output
        return (not each.meets, price is None, cost, each.chips)

    return sorted(found, key=key)


def best_of_each_chip(found: Sequence[Found]) -> list[Found]:
    """The first of every chip, in order."""
    seen: dict[str, Found] = {}
    for each in found:
        seen.setdefault(each.replica.chip.name, each)
    return list(seen.values())


def describe(found: Found, wish: Wish) -> ServeOption:
    """With intervals, money and energy."""
    replica, load = found.replica, found.load
    constants, chip = replica.constants, replica.chip
    more = ("experts",) if replica.model.experts else ()
    token = replica.decode(load.sequences / replica.spread.pp, wish.prompt + wish.output / 2)
    alone = replica.prefill(1, max(wish.prompt, 1.0))
    terms = load.cycle.scaled(1 / wish.output).terms()
    group_rate = load.per_second * replica.spread.dp
    served = group_rate * found.replicas
    if wish.rate_per_s is not None:
        served = min(served, wish.rate_per_s * wish.output)
    price = found.usd_per_hour
    rate = estimate((group_rate, "tok/s"), terms, (RATE, *more), constants)
    usd = None if price is None else price / 3600 / served * MILLION
    joule = joule_per_token(replica, load, wish.prompt, wish.output)
    return ServeOption(
        chip=chip.name,
        spread=replace(replica.spread),
        replicas=found.replicas,
        chips=found.chips,
        sequences=load.sequences * replica.spread.dp,
        most_sequences=replica.room(wish.prompt + wish.output) * replica.spread.dp,
        critical_batch=critical_batch(replica),
        rate_tokens_per_s=rate,
        tpot_s=estimate((load.tpot_s, "s"), terms, (TPOT, *more), constants),
        ttft_s=estimate((load.ttft_s, "s"), alone.terms(), (TTFT, *more), constants),
        prefill_s=alone.seconds,
        exchange_share=token.exchange / token.seconds,
        usd_per_mtoken=usd,
        usd_per_hour=price,
        joule_per_token=joule,
        weight_bytes_per_chip=weight_bytes(replica.model, replica.precision, replica.spread),
        cache_bytes_per_sequence=cache_bytes(
            replica.model, replica.precision, replica.spread, wish.prompt + wish.output
        ),
        meets=found.meets,
        usd_per_mtoken_range=as_sure_as(rate, usd, "$/Mtok"),
        joule_per_token_range=energy_range(joule, terms, more, constants),
        precision=replica.precision.name,
    )


def energy_range(
    joule: float | None, terms: Sequence[Term], more: tuple[str, ...], constants: Constants
) -> Estimate | None:
    """Power is in doubt, and so is the rate that it is spread over."""
    if joule is None:
        return None
    return estimate((joule, "J/tok"), terms, (RATE, ENERGY, *more), constants)
