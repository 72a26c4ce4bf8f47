"""`plan train`: the layout that trains fastest within memory, and what breaks on the way.

Also here: what a mixture of experts does in training: tokens of a micro-batch, all-to-all,
imbalance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.physics.energy import power_w
from fuelline.plan.physics.expert_operators import expert_share, touched_share
from fuelline.plan.physics.interval import DENSE, ENERGY, SPARSE, as_sure_as, estimate
from fuelline.plan.physics.kernels import ACT_BYTES
from fuelline.plan.physics.step import fullest
from fuelline.plan.training.layouts import Layout, TrainWish, find_layout
from fuelline.plan.training.memory import count_memory
from fuelline.plan.training.reliability import find_goodput, find_jitter
from fuelline.plan.training.step import model_flops
from fuelline.schema.errors import InputError
from fuelline.schema.plan.answers import DistantSites, ExpertLoad, TrainAnswer
from fuelline.schema.plan.estimates import Term
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.plan.physics.setup import Setup
    from fuelline.plan.training.step import Schedule, Training
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.models import Model


PRACTICAL_MFU = 0.40
USUAL_JITTER = 0.02
"""Shown when none is given: GPUs of one node differ by 5 % from best to worst (ml-engineering)."""
TOKEN_BYTES = 4.0
"""A token on disk as most loaders keep it (uint16 or int32)."""


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


def _apart(model: Model, wish: TrainWish, step_s: float) -> DistantSites:
    """Sites exchange all gradients every step over one link each, by a ring."""
    size = 2.0 * model.params
    moved = 2 * (wish.sites - 1) / wish.sites * size
    rate = wish.link_gbps * 1e9
    exchange = moved / rate
    return DistantSites(
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
    return Term(
        name="exchange between sites",
        seconds=exposed_s,
        limit="link between sites",
        doubt_frac=0.35,
    )


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


PASSES = 4.0
"""Exchanges of a token and layer: to its experts and back, forward and backward."""


def count_experts(setup: Setup, schedule: Schedule, step: Training) -> ExpertLoad | None:
    """Tokens are of a micro-batch, bytes and seconds of a step; None for a dense model."""
    model, spread = setup.model, setup.spread
    if not model.experts:
        return None
    lanes = expert_share(model, spread).replicas
    tokens = schedule.microbatch * schedule.length / spread.cp * lanes
    sent = step.tokens * model.moe_layers * model.experts_per_token * model.hidden * ACT_BYTES
    return ExpertLoad(
        tokens=tokens,
        touched_share=touched_share(model.experts, model.experts_per_token, tokens),
        tokens_per_expert=tokens * model.experts_per_token / model.experts,
        all_to_all_bytes=PASSES * sent if spread.ep > 1 else 0.0,
        all_to_all_s=step.expert_s,
        imbalance_frac=fullest(setup) - 1,
        imbalance_s=step.uneven_s,
    )
