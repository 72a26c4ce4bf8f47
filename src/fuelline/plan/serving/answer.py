"""From a question about serving to the whole answer: search, floor, pools, sweep, advice.

Also here: ways to cut one replica over chips: what is given is kept, the rest is tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.plan.models.native import precision_on, say_native
from fuelline.plan.models.shapes import why_uneven
from fuelline.plan.physics.memory import sram_spread
from fuelline.plan.serving.advice import advise, say_more_chips, say_nothing_fits, say_smaller_batch
from fuelline.plan.serving.chips import smallest_spread
from fuelline.plan.serving.describing import describe
from fuelline.plan.serving.floor import find_floor
from fuelline.plan.serving.load import Stream, lead_with, simulate_finalists
from fuelline.plan.serving.pools import split_pools
from fuelline.plan.serving.search import (
    ServeCandidate,
    Wish,
    best_of_each_chip,
    candidates,
    find_load,
    order,
)
from fuelline.schema.errors import InputError
from fuelline.schema.plan.answers import ServeAnswer, SweepPoint
from fuelline.schema.plan.estimates import Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fuelline.plan.physics.constants import Constants, Engine
    from fuelline.schema.plan.answers import ServeOption
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision
    from fuelline.schema.plan.simulated import FleetAnswer


DEFAULT_PROMPT, DEFAULT_OUTPUT = 1024.0, 256.0
SHOWN = 8
PARETO = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


_FIELDS = {"price": 1.0, "measured": 1.0, "headroom": 0.01}
"""Swept flags that are fields of a question, and from their unit to the field's."""
_STREAM = {"vary": "length_spread", "attain": "attain_share"}
"""Swept flags, in per cent, that are shares of a stream."""


class Question(Struct, frozen=True, kw_only=True):
    """What `plan serve` was asked."""

    model: Model
    precision: Precision
    chips: tuple[Chip, ...]
    engine: Engine
    limits: dict[str, float]
    values: dict[str, tuple[float, ...] | None]
    swept: str = ""
    measured: float | None = None
    price: float | None = None
    headroom: float = 0.2
    offload: bool = False
    plotted: bool = False
    stream: Stream = Stream()
    """How requests come, where a rate is given."""
    walked: tuple[float, ...] = ()
    """Values of the swept flag, in its own unit."""
    native: bool = False
    """The precision is the release's, so that a chip without its unit takes half precision."""

    def precision_for(self, chip: Chip) -> Precision:
        """What this chip runs."""
        return precision_on(self.model, chip, self.precision) if self.native else self.precision

    def one(self, name: str, default: float | None = None) -> float | None:
        """The only value of a flag; of a swept one the first."""
        values = self.values.get(name)
        return values[0] if values else default

    def at(self, value: float) -> Question:
        """The same with the swept flag fixed."""
        if self.swept in ("ttft", "tpot"):
            return replace(self, limits={**self.limits, self.swept: value})
        if self.swept in _FIELDS:
            return replace(self, **{self.swept: value * _FIELDS[self.swept]})
        if self.swept == "kv":
            return replace(self, precision=replace(self.precision, kv_bits=value))
        if self.swept in _STREAM:
            field = _STREAM[self.swept]
            return replace(self, stream=replace(self.stream, **{field: value / 100}))
        return replace(self, values={**self.values, self.swept: (value,)})

    def wish(self) -> Wish:
        """What is asked of a deployment; over a range, anything within it."""
        batches, chips = (self.values.get(name) or () for name in ("batch", "chips"))
        return Wish(
            prompt=self.one("in") or DEFAULT_PROMPT,
            output=self.one("out") or DEFAULT_OUTPUT,
            rate_per_s=self.one("rate"),
            ttft_s=self.limits.get("ttft"),
            tpot_s=self.limits.get("tpot"),
            headroom=self.headroom,
            sequences=batches[0] if len(batches) == 1 else None,
            between=(min(batches), max(batches)) if len(batches) > 1 else None,
            most_chips=int(max(chips)) if chips else None,
            offload=self.offload,
        )


def answer_serving(question: Question, constants: Constants) -> ServeAnswer:
    """The best ways, best first."""
    question = _with_price(question)
    wish = question.wish()
    found, searched = search(question, constants)
    walked = (
        _pinned(question, found[0].replica.spread, found[0].replica.chip) if found else question
    )
    swept = [_point(walked, value, constants) for value in _sweep_values(question)]
    if not found:
        found = [each for point in swept for each in point[1][:1]]
    if not found:
        raise InputError(_why_nothing(question, constants))
    doubted = describe(found[0], wish).tpot_s
    fleet = simulate_finalists(found, wish, question.stream, doubted)
    best = best_of_each_chip(lead_with(found, fleet))
    first = best[0].replica
    context = wish.prompt + wish.output / 2
    options = tuple(describe(each, wish) for each in best[:SHOWN])
    return ServeAnswer(
        model=question.model.name,
        params=question.model.params,
        active_params=question.model.active_params,
        precision=first.precision.name,
        prompt=wish.prompt,
        output=wish.output,
        rate_per_s=wish.rate_per_s,
        ttft_limit_s=wish.ttft_s,
        tpot_limit_s=wish.tpot_s,
        floor=find_floor(first, context, question.measured),
        options=options,
        pools=split_pools(best[0], wish) if _may_split(question, first.spread) else None,
        swept=question.swept or ("batch" if question.plotted else ""),
        sweep=tuple(point for point, _ in swept),
        advice=tuple(advise(question, best, wish)),
        searched=searched,
        fleet=fleet,
        precision_note=say_native(question.model, first.chip, question.precision)
        if question.native
        else "",
        most_chips=wish.most_chips,
    )


def _why_nothing(question: Question, constants: Constants) -> str:
    """Which of batch, chips and memory is in the way, and what would do."""
    freed = {name: value for name, value in question.values.items() if name != "batch"}
    smaller, _ = search(replace(question, values=freed), constants)
    if smaller:
        return say_smaller_batch(question, smaller)
    freely, _ = search(_with_any_chips(question), constants)
    return say_more_chips(question, freely) if freely else say_nothing_fits(question)


def _may_split(question: Question, spread: Parallelism) -> bool:
    """Two pools are compared where a load is asked for and the batch is free."""
    asked = question.one("rate") is not None or bool(question.limits)
    return asked and question.one("batch") is None and spread.pp == 1 and spread.ep == 1


def _pinned(question: Question, spread: Parallelism, chip: Chip) -> Question:
    """A walk over batches stays on one replica, or its points would not belong together."""
    if (question.swept or "batch") != "batch":
        return question
    wide = spread.ep if spread.ep > 1 else None
    fixed = {"tp": spread.tp, "pp": spread.pp, "ep": wide, "cp": spread.cp}
    values = {name: None if size is None else (float(size),) for name, size in fixed.items()}
    return replace(question, chips=(chip,), values={**question.values, **values})


def _with_price(question: Question) -> Question:
    if question.price is None:
        return question
    chips = tuple(replace(chip, usd_per_hour=question.price) for chip in question.chips)
    return replace(question, chips=chips)


def search(question: Question, constants: Constants) -> tuple[list[ServeCandidate], int]:
    """All candidates with their loads, best first, and how many were looked at."""
    wish = question.wish()
    spreads = {chip.name: _spreads(question, chip) for chip in question.chips}
    software = (question.engine, constants)
    replicas = [
        each
        for chip in question.chips
        for each in candidates(
            question.model,
            (chip,),
            question.precision_for(chip),
            spreads,
            software,
            offload=question.offload,
        )
        if wish.most_chips is None or each.spread.chips <= wish.most_chips
    ]
    found = [each for replica in replicas if (each := find_load(replica, wish)) is not None]
    return order(found, wish), len(replicas)


def _with_any_chips(question: Question) -> Question:
    values = {name: value for name, value in question.values.items() if name != "chips"}
    return replace(
        question, values=values, swept="" if question.swept == "chips" else question.swept
    )


def _spreads(question: Question, chip: Chip) -> list[Parallelism]:
    def given(name: str) -> list[int] | None:
        values = question.values.get(name)
        return None if values is None else [int(value) for value in values]

    if chip.kind == "sram" and not any(given(name) for name in ("tp", "pp", "ep", "cp")):
        return _sram_spreads(question, chip)
    whole = list_spreads(question.model, chip, given("tp"), given("pp"), given("ep"))
    # Sequences are cut only if that is asked for: it repeats the weights.
    found = [replace(each, cp=size) for each in whole for size in given("cp") or (1,)]
    if not chip.linked and chip.kind != "sram":
        return [each for each in found if each.chips == 1]
    return found


def _sram_spreads(question: Question, chip: Chip) -> list[Parallelism]:
    """The fewest chips that hold the model, and all that there may be."""
    precision = question.precision_for(chip)
    few = smallest_spread(question.model, chip, precision)
    most = question.wish().most_chips
    if few is None or most is None or most < few.chips:
        return [few] if few else []
    all_of_them = sram_spread(question.model, chip, precision, most)
    return [few] if all_of_them in (few, None) else [few, all_of_them]


def _sweep_values(question: Question) -> tuple[float, ...]:
    if question.swept:
        return question.walked
    return PARETO if question.plotted else ()


def _point(
    question: Question, value: float, constants: Constants
) -> tuple[SweepPoint, list[ServeCandidate]]:
    here = _with_price(replace(question, swept=question.swept or "batch").at(value))
    found, _ = search(here, constants)
    if not found:
        full = here.swept == "batch"
        uneven = why_uneven(question.model, here.swept, value)
        why = uneven or ("the cache does not fit" if full else "does not fit")
        return SweepPoint(at=value, option=None, why_not=why), []
    wish = here.wish()
    option = describe(found[0], wish)
    fleet = _fleet(here, found, option)
    found = lead_with(found, fleet)
    first = fleet.options[0] if fleet is not None else None
    floor = find_floor(found[0].replica, wish.prompt + wish.output / 2, here.measured)
    point = SweepPoint(
        at=value,
        option=describe(found[0], wish),
        fleet=first if first is not None and first.simulated is not None else None,
        floor=floor,
    )
    return point, found


def _fleet(
    question: Question, found: list[ServeCandidate], option: ServeOption
) -> FleetAnswer | None:
    """What a rate needs at this value; None if there is no rate."""
    token = option.tpot_s
    return simulate_finalists(found, question.wish(), question.stream, token, pools=False)


_DEGREES = (1, 2, 4, 8)


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
