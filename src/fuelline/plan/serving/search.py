"""`plan serve`: over chips, degrees and batches, what serves a load within limits at least cost.

Every candidate is a replica whose largest load within the limits is found; replicas are then as
many as the rate needs with headroom and spares. What is shown of a candidate is told in
`describing`: only those get intervals, so that the search stays below two seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.plan.physics.deployment import Deployment
from fuelline.plan.physics.memory import cache_room, most_host_share
from fuelline.plan.serving.steady import Load, arrive
from fuelline.plan.simulation.spares import add_spares

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fuelline.plan.physics.constants import Constants, Engine
    from fuelline.plan.physics.tally import Tally
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.estimates import Parallelism
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
GRAIN = 0.1
"""A largest batch is found to this share of it."""
SAME_COST = 1.03
"""Costs that differ by less are the same: the model does not know rates any better."""


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
    """A fixed number at once instead of the largest that meets the limits."""
    between: tuple[float, float] | None = None
    """Fewest and most at once that are looked at."""
    most_chips: int | None = None
    """In all; None: as many as it takes."""
    offload: bool = False
    """Weights may be in host memory."""


class ServeCandidate(Struct, frozen=True, kw_only=True):
    """A candidate with the load that it carries."""

    replica: Deployment
    load: Load
    meets: bool
    replicas: int
    """To have: with headroom and spares for a rate, and never more than `most_chips` allow."""
    short: bool = False
    """The rate asked for needs more chips, headroom counted, than there may be."""
    wanted: int = 1
    """Replicas that the rate needs with headroom and spares, however many are allowed."""

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


def find_load(replica: Deployment, wish: Wish) -> ServeCandidate | None:
    """The largest load within the limits; if none is, the smallest, marked."""
    best: tuple[Deployment, Load] | None = None
    first: tuple[Deployment, Load] | None = None
    kept = 0.0
    alone = None if wish.offload else replica.prefill(1, max(wish.prompt, 1.0))
    for size in _sizes(replica, wish):
        tried = _try(replica, size, wish, alone)
        if tried is None:
            continue
        first = first or tried
        if not keeps(tried[1], wish):
            between = _between(replica, (kept, size), wish, alone) if best else None
            best = between or best
            break
        kept = size
        if best is None or tried[1].per_second > best[1].per_second:
            best = tried
    chosen = best or first
    return None if chosen is None else settle(*chosen, wish, meets=best is not None)


def _between(
    replica: Deployment, sizes: tuple[float, float], wish: Wish, alone: Tally | None
) -> tuple[Deployment, Load] | None:
    """The largest load within the limits between one that keeps them and one that does not."""
    low, high = sizes
    best = None
    while high - low > max(1.0, GRAIN * high):
        middle = float(round((low + high) / 2))
        tried = _try(replica, middle, wish, alone)
        if tried is not None and keeps(tried[1], wish):
            low, best = middle, tried
        else:
            high = middle
    return best


def _sizes(replica: Deployment, wish: Wish) -> Sequence[float]:
    """Sequences of an attention replica to try."""
    if wish.sequences is not None:
        return [wish.sequences / replica.spread.dp]
    emptied = replica
    if wish.offload:
        emptied = replace(replica, host_share=most_host_share(replica.model))
    most = emptied.most(wish.prompt + wish.output)
    if wish.between is None:
        return [*(size for size in _BATCHES if size < most), most]
    fewest, highest = (size / replica.spread.dp for size in wish.between)
    ends = (fewest, min(highest, most)) if fewest <= most else ()
    return sorted({*ends, *(size for size in _BATCHES if fewest < size < min(highest, most))})


def _try(
    replica: Deployment, size: float, wish: Wish, alone: Tally | None
) -> tuple[Deployment, Load] | None:
    """With as much in host memory as this many sequences need; None if they do not fit."""
    context = wish.prompt + wish.output
    holding = replica.offloaded(size, context) if wish.offload else replica
    if holding is None or not 0 < size <= math.floor(holding.room(context) + 1e-9):
        return None
    return holding, arrive(holding, size, wish.prompt, wish.output, alone)


def keeps(load: Load, wish: Wish) -> bool:
    """Both limits, where they are given."""
    return (wish.tpot_s is None or load.tpot_s <= wish.tpot_s) and (
        wish.ttft_s is None or load.ttft_s <= wish.ttft_s
    )


def times_over(load: Load, wish: Wish) -> float:
    """The limit that is missed by most: this many times what is allowed."""
    pairs = ((load.ttft_s, wish.ttft_s), (load.tpot_s, wish.tpot_s))
    return max((taken / limit for taken, limit in pairs if limit), default=0.0)


def settle(replica: Deployment, load: Load, wish: Wish, *, meets: bool) -> ServeCandidate:
    """How many replicas the rate needs with headroom and spares, within the chips allowed."""
    most = None if wish.most_chips is None else wish.most_chips // replica.spread.chips
    if wish.rate_per_s is None:
        return ServeCandidate(
            replica=replica, load=load, meets=meets, replicas=1 if most is None else most
        )
    usable = load.per_second * replica.spread.dp * (1 - wish.headroom)
    needed = max(math.ceil(wish.rate_per_s * wish.output / usable - 1e-9), 1)
    bought = add_spares(needed, replica.spread.chips)
    return ServeCandidate(
        replica=replica,
        load=load,
        meets=meets,
        replicas=bought if most is None else min(bought, most),
        short=most is not None and most < needed,
        wanted=bought,
    )


def order(found: Sequence[ServeCandidate], wish: Wish) -> list[ServeCandidate]:
    """Those that meet the limits first, then by money for a token, then by chips.

    Of those that cannot carry the rate with the chips allowed, the one that carries most is first;
    of those that keep no limit, the one that comes nearest.
    """

    def key(each: ServeCandidate) -> tuple[bool, float, bool, float, bool, float, int]:
        lacking = -each.served(wish) if each.short else 0.0
        unpriced = each.usd_per_hour is None
        missed = 0.0 if each.meets else times_over(each.load, wish)
        return (not each.meets, missed, each.short, lacking, unpriced, each.cost(wish), each.chips)

    return _simplest_first(sorted(found, key=key), wish)


def _simplest_first(found: list[ServeCandidate], wish: Wish) -> list[ServeCandidate]:
    """Of ways on the best chip that cost the same within doubt, the smallest instance is first."""
    if not found or found[0].short or not found[0].meets:
        return found
    best = found[0]
    alike = [
        each
        for each in found
        if each.replica.chip.name == best.replica.chip.name
        and each.meets
        and not each.short
        and each.cost(wish) <= SAME_COST * best.cost(wish)
    ]
    lead = min(alike, key=lambda each: each.replica.spread.chips)
    return [lead, *(each for each in found if each is not lead)]


def best_of_each_chip(found: Sequence[ServeCandidate]) -> list[ServeCandidate]:
    """The first of every chip, in order."""
    seen: dict[str, ServeCandidate] = {}
    for each in found:
        seen.setdefault(each.replica.chip.name, each)
    return list(seen.values())
