"""`plan train`: the layout that trains fastest within memory, and what breaks on the way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.predict.planner.check.answer import DENSE, ENERGY, SPARSE
from fuelline.predict.planner.physics.interval import as_sure_as, estimate
from fuelline.predict.planner.serve.energy import power_w
from fuelline.predict.planner.train.expert_step import count_experts
from fuelline.predict.planner.train.reliability import find_goodput, find_jitter
from fuelline.predict.planner.train.training import Schedule, Training, model_flops, time_training
from fuelline.predict.planner.train.training_memory import count_memory
from fuelline.schema.errors import InputError
from fuelline.schema.plan_answers import Apart, TrainAnswer
from fuelline.schema.plans import Parallelism, Term
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fuelline.predict.planner.physics.setup import Setup
    from fuelline.schema.chips import Chip
    from fuelline.schema.models import Model

PRACTICAL_MFU = 0.40
NEAR_FRAC = 0.1
"""A batch made of whole micro-batches may differ from the one asked for by so much."""
_MOST_POWER = 18
"""Of two: more chips than anybody has."""
USUAL_JITTER = 0.02
"""Shown when none is given: GPUs of one node differ by 5 % from best to worst (ml-engineering)."""
TOKEN_BYTES = 4.0
"""A token on disk as most loaders keep it (uint16 or int32)."""


class TrainWish(Struct, frozen=True, kw_only=True):
    """What is asked; None is searched for."""

    chips: int
    tokens: float
    length: float = 4096.0
    batch_tokens: float = 4e6
    tp: int | None = None
    pp: int | None = None
    cp: int = 1
    ep: int | None = None
    zero: int | None = None
    recompute: str | None = None
    microbatch: float | None = None
    interleave: int | None = None
    jitter_frac: float | None = None
    """Spread of a rank's step time on top of what the constants have seen."""
    checkpoint_s: float | None = None
    chip_hours: float | None = None
    sample_bytes: float | None = None
    """Of one sample on storage; by default a sequence of tokens."""
    sites: int = 1
    link_gbps: float = 1.25
    """Between sites, 1e9 bytes/s."""


class Layout(Struct, frozen=True, kw_only=True):
    """One way to train with its step."""

    spread: Parallelism
    schedule: Schedule
    step: Training
    total_bytes: float


def find_layout(setup: Setup, wish: TrainWish) -> Layout:
    """The fastest that fits; if none does, an error with the smallest change that would."""
    model, chip = setup.model, setup.chip
    best: Layout | None = None
    least: tuple[float, Parallelism] | None = None
    room = chip.mem_bytes
    for spread, schedule in _layouts(model, wish):
        memory = count_memory(model, chip, spread, schedule)
        if least is None or memory.total_bytes < least[0]:
            least = (memory.total_bytes, spread)
        if not memory.fits:
            continue
        step = time_training(replace(setup, spread=spread), schedule)
        if best is None or step.tokens_per_s > best.step.tokens_per_s:
            best = Layout(
                spread=spread, schedule=schedule, step=step, total_bytes=memory.total_bytes
            )
    if best is not None:
        return best
    if least is None:
        raise InputError(_no_layout(model, wish))
    raise InputError(
        f"{model.name} does not fit on {wish.chips} x {chip.name}: at best (tp {least[1].tp}, pp "
        f"{least[1].pp}) {least[0] / 1e9:,.0f} GB a chip where {(room or 0) / 1e9:,.0f} are. "
        f"{_smallest_change(model, chip, wish)}"
    )


def _smallest_change(model: Model, chip: Chip, wish: TrainWish) -> str:
    """What fits without more chips; else the next power of two of chips that does."""
    freed = {
        "--zero 3": replace(wish, zero=3),
        "--recompute full": replace(wish, recompute="full"),
        "--microbatch 1": replace(wish, microbatch=1.0),
        "no --tp and no --pp": replace(wish, tp=None, pp=None),
    }
    for words, other in freed.items():
        if other != wish and _fits(model, chip, other):
            return f"With {words} it does."
    for power in range(_MOST_POWER):
        other = replace(wish, chips=2**power)
        if 2**power > wish.chips and _fits(model, chip, other):
            return f"With --chips {2**power:,} it does."
    return "No number of these chips holds it: another chip, or a smaller --seq."


def _fits(model: Model, chip: Chip, wish: TrainWish) -> bool:
    return any(
        count_memory(model, chip, spread, schedule).fits
        for spread, schedule in _layouts(model, wish)
    )


def _no_layout(model: Model, wish: TrainWish) -> str:
    return (
        f"no layout of {wish.chips} chips divides {model.name} ({model.heads} heads, "
        f"{model.layers} layers) "
        f"with tp {wish.tp or 'any'}, pp {wish.pp or 'any'}, cp {wish.cp}, ep {wish.ep or 'any'} "
        "at "
        f"{wish.batch_tokens / wish.length:.0f} sequences a step. tp must divide the heads, tp x "
        "pp x cp the "
        "chips, and replicas must not be more than sequences: change one of them."
    )


def _layouts(model: Model, wish: TrainWish) -> list[tuple[Parallelism, Schedule]]:
    """Ways whose micro-batches make about the batch asked for; if none does, all that may be."""
    asked = wish.batch_tokens / wish.length
    every = list(_every_layout(model, wish, asked))
    near = [each for each in every if abs(each[1].batch / asked - 1) <= NEAR_FRAC]
    return near or every


def _every_layout(
    model: Model, wish: TrainWish, asked: float
) -> Iterator[tuple[Parallelism, Schedule]]:
    for spread in _spreads(model, wish):
        for micro in [wish.microbatch] if wish.microbatch else (1, 2, 4):
            together = spread.dp * micro
            # A replica runs whole micro-batches: the batch is the nearest that they make.
            batch = together * max(round(asked / together), 1)
            if together > (1 + NEAR_FRAC) * max(asked, 1.0):
                continue
            for recompute in [wish.recompute] if wish.recompute else ("none", "selective", "full"):
                for zero in [wish.zero] if wish.zero is not None else (1, 3):
                    if zero == 3 and spread.pp > 1:
                        continue
                    yield (
                        spread,
                        Schedule(
                            batch=batch,
                            length=wish.length,
                            microbatch=micro,
                            recompute=recompute,
                            interleave=wish.interleave or (4 if spread.pp > 1 else 1),
                            zero=zero,
                        ),
                    )


def _spreads(model: Model, wish: TrainWish) -> Iterator[Parallelism]:
    for tp in [wish.tp] if wish.tp else (1, 2, 4, 8):
        for pp in [wish.pp] if wish.pp else (1, 2, 4, 8, 16):
            used = tp * pp * wish.cp
            if model.heads % tp or pp > model.layers or wish.chips % used:
                continue
            dp = wish.chips // used
            for ep in _experts(model, wish, tp * dp):
                yield Parallelism(tp=tp, pp=pp, dp=dp, cp=wish.cp, ep=ep, shared_norms=True)


def _experts(model: Model, wish: TrainWish, ranks: int) -> Sequence[int]:
    if not model.experts:
        return (1,)
    if wish.ep:
        return (wish.ep,) if ranks % wish.ep == 0 else ()
    return [size for size in (1, 8, 16, 32, 64) if size <= ranks and model.experts % size == 0]


def plan_training(setup: Setup, wish: TrainWish) -> TrainAnswer:
    """Everything that `plan train` says about the best layout."""
    if wish.chips > 1 and not setup.chip.linked:
        raise InputError(
            f"the links of {setup.chip.name} are not known, and no other chip's are taken for "
            "them: --chips 1, or a [[chip]] entry that has scaleup_gbps: --catalogue FILE."
        )
    model, chip, precision, constants = setup.model, setup.chip, setup.precision, setup.constants
    layout = find_layout(setup, wish)
    step, schedule, spread = layout.step, layout.schedule, layout.spread
    jitter = find_jitter(wish.chips, wish.jitter_frac or USUAL_JITTER)
    late_s = step.seconds * jitter.expected_frac if wish.jitter_frac else 0.0
    seconds = step.seconds + late_s
    terms = step.terms(setup.doubt_frac)
    if late_s > 0:
        terms = (*terms, _slowest(wish.chips, late_s))
    apart = _apart(model, wish, seconds) if wish.sites > 1 else None
    if apart is not None and apart.step_s > seconds:
        terms = (*terms, _between_sites(apart.step_s - seconds))
        seconds = apart.step_s
    group = SPARSE if model.experts else DENSE
    goodput = (
        find_goodput(model.params, wish.chips, wish.checkpoint_s, wish.chip_hours)
        if wish.chip_hours
        else find_goodput(model.params, wish.chips, wish.checkpoint_s)
    )
    rate = step.tokens / seconds
    flops = model_flops(model, wish.length) * rate / wish.chips
    peak = chip.peak_flops("bf16") or math.nan
    at_peak_s = flops / peak * seconds
    run_s = wish.tokens / rate / max(goodput.share, 1e-3)
    watts = power_w(chip, 0.5 * (chip.mem_bytes_per_s or 0.0), flops)
    step_range = estimate((seconds, "s"), terms, (group,), constants)
    usd = None if chip.usd_per_hour is None else chip.usd_per_hour * wish.chips * run_s / 3600
    joule = None if watts is None else watts * wish.chips * run_s
    return TrainAnswer(
        model=model.name,
        params=model.params,
        active_params=model.active_params,
        chip=chip.name,
        chips=wish.chips,
        precision=precision.name,
        spread=spread,
        zero=schedule.zero,
        recompute=schedule.recompute,
        microbatch=schedule.microbatch,
        interleave=schedule.interleave,
        batch_sequences=schedule.batch,
        length=wish.length,
        tokens=wish.tokens,
        step_s=step_range,
        mfu_frac=estimate((flops / peak, "frac"), terms, (group,), constants, work=at_peak_s),
        tokens_per_s=rate,
        days=run_s / 86400,
        usd=usd,
        energy_joule=joule,
        memory=count_memory(model, chip, spread, schedule),
        loader_bytes_per_s=rate * _bytes_per_token(wish),
        goodput=goodput,
        jitter=jitter,
        apart=apart,
        advice=tuple(
            _advice(
                chip,
                layout,
                flops / peak,
                jitter.expected_frac if wish.jitter_frac else 0.0,
                goodput.share,
            )
        ),
        days_range=as_sure_as(step_range, run_s / 86400, "days"),
        usd_range=as_sure_as(step_range, usd, "$"),
        energy_range=None
        if joule is None
        else replace(estimate((joule, "J"), terms, (group, ENERGY), constants), terms=()),
        microbatches=round(schedule.batch / (spread.dp * schedule.microbatch)),
        asked_batch_tokens=wish.batch_tokens,
        experts=count_experts(replace(setup, spread=spread), schedule, step),
    )


def _bytes_per_token(wish: TrainWish) -> float:
    return wish.sample_bytes / wish.length if wish.sample_bytes else TOKEN_BYTES


def _apart(model: Model, wish: TrainWish, step_s: float) -> Apart:
    """Sites exchange all gradients every step over one link each, by a ring."""
    size = 2.0 * model.params
    moved = 2 * (wish.sites - 1) / wish.sites * size
    rate = wish.link_gbps * 1e9
    exchange = moved / rate
    return Apart(
        sites=wish.sites,
        link_bytes_per_s=rate,
        exchange_s=exchange,
        step_s=step_s + max(exchange - 0.5 * step_s, 0.0),
        share=step_s / (step_s + max(exchange - 0.5 * step_s, 0.0)),
        needed_bytes_per_s=moved / (0.5 * step_s),
    )


def _slowest(ranks: int, late_s: float) -> Term:
    """What ranks wait for the slowest of them."""
    name = f"slowest of {ranks:,} ranks"
    return Term(name=name, seconds=late_s, limit="jitter", doubt_frac=0.5)


def _between_sites(exposed_s: float) -> Term:
    """What of the exchange no step hides; the rate of a shared link is anybody's guess."""
    name, limit = "exchange between sites", "link between sites"
    return Term(name=name, seconds=exposed_s, limit=limit, doubt_frac=0.35)


def _advice(chip: Chip, layout: Layout, mfu: float, jitter: float, goodput: float) -> Iterator[str]:
    step = layout.step
    total = step.seconds
    if step.bubble_s > 0.1 * total:
        yield (
            f"The pipeline bubble takes {percent(step.bubble_s / total)}: more micro-batches (a "
            "larger batch), more "
            "interleaving or fewer stages shrink it."
        )
    if step.data_s > 0.1 * total:
        yield (
            f"Exchange between replicas takes {percent(step.data_s / total)}: larger batches a "
            "step, fewer replicas or "
            "a faster network."
        )
    if step.tensor_s > 0.15 * total:
        share = percent(step.tensor_s / total)
        yield f"Tensor-parallel exchange takes {share}: try a smaller --tp."
    if mfu < PRACTICAL_MFU:
        yield f"MFU of {percent(mfu)} is below the practical {percent(PRACTICAL_MFU)}."
    if jitter > 0.05:
        yield (
            f"Jitter alone costs {percent(jitter)} on so many ranks: find the slow ones before "
            "adding more."
        )
    if goodput < 0.9:
        yield "Failures and checkpoints cost more than a tenth: faster checkpoints help most."
    if chip.scaleup_domain < layout.spread.tp:
        yield (
            f"tp {layout.spread.tp} leaves the scale-up domain of {chip.scaleup_domain}: "
            "exchanges go by "
            "the network."
        )
