"""`plan chips`: every chip of the catalogue side by side for one model.

For serving: the smallest group that holds the model, its floor, one user's rate, and the rate at a
full load. For training: MFU and rate of a fixed number of chips. What is not known about a chip
stays blank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.physics.deployment import Deployment
from fuelline.plan.physics.interval import as_sure_as
from fuelline.plan.physics.memory import cache_room, sram_spread
from fuelline.plan.physics.setup import Setup
from fuelline.plan.serving.describing import MILLION, describe, per_chip, user_rate
from fuelline.plan.serving.floor import find_floor
from fuelline.plan.serving.search import Wish, find_load
from fuelline.plan.training.answer import plan_training
from fuelline.schema.errors import InputError
from fuelline.schema.plan.answers import ChipLine
from fuelline.schema.plan.estimates import Parallelism

if TYPE_CHECKING:
    from fuelline.plan.physics.constants import Constants, Engine
    from fuelline.plan.training.layouts import TrainWish
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.models import Model
    from fuelline.schema.plan.precision import Precision

_MOST_STAGES = 16


def smallest_spread(model: Model, chip: Chip, precision: Precision) -> Parallelism | None:
    """Fewest chips that hold the weights and some cache; None if a sensible number does not."""
    if chip.kind == "sram":
        return sram_spread(model, chip, precision)
    degrees = (1, 2, 4, 8) if chip.linked else (1,)
    for stages in (1, 2, 4, 8, _MOST_STAGES) if chip.linked else (1,):
        for tp in degrees:
            spread = Parallelism(tp=tp, pp=stages)
            if model.heads % tp == 0 and cache_room(model, chip, precision, spread) > 0:
                return spread
    return None


def line_for_serving(
    model: Model,
    chip: Chip,
    precision: Precision,
    wish: Wish,
    software: tuple[Engine, Constants],
) -> ChipLine:
    """One chip."""
    engine, constants = software
    if chip.mem_bytes_per_s is None or chip.peak_flops("bf16") is None or chip.mem_bytes is None:
        return _blank(chip, "memory or math rate is not known")
    spread = smallest_spread(model, chip, precision)
    if spread is None:
        return _blank(
            chip, "does not fit" if chip.linked else "does not fit on one; no links known"
        )
    replica = Deployment(
        model=model,
        chip=chip,
        precision=precision,
        spread=spread,
        constants=constants,
        engine=engine,
    )
    context = wish.prompt + wish.output / 2
    found, alone = find_load(replica, wish), find_load(replica, replace(wish, sequences=1.0))
    option = None if found is None else describe(found, wish)
    rate = None if option is None else per_chip(option.rate_tokens_per_s, spread.chips)
    usd = None if rate is None else _usd(chip, rate.value)
    return ChipLine(
        chip=chip.name,
        chips=spread.chips,
        floor_s=find_floor(replica, context).seconds,
        user_tokens_per_s=None if alone is None else user_rate(alone),
        tokens_per_s_per_chip=rate,
        usd_per_mtoken=usd,
        joule_per_token=None if option is None else option.joule_per_token,
        why_not="" if found is not None else "no room for a cache of this length",
        usd_per_mtoken_range=as_sure_as(rate, usd, "$/Mtok") if rate else None,
        joule_per_token_range=None if option is None else option.joule_per_token_range,
        precision=precision.name,
        spread=spread,
        sequences=None if option is None else option.sequences,
    )


def _usd(chip: Chip, tokens_per_s: float) -> float | None:
    price = chip.usd_per_hour
    return None if price is None else price / 3600 / tokens_per_s * MILLION


def line_for_training(
    model: Model, chip: Chip, precision: Precision, wish: TrainWish, constants: Constants
) -> ChipLine:
    """One chip; `tokens_per_s_per_chip` is the training rate."""
    if chip.mem_bytes_per_s is None or chip.peak_flops("bf16") is None or chip.mem_bytes is None:
        return _blank(chip, "memory or math rate is not known")
    if chip.kind in ("sram", "apple"):
        return _blank(chip, "not built for training")
    if wish.chips > 1 and not chip.linked:
        return _blank(chip, "no links known")
    try:
        setup = Setup(model=model, chip=chip, precision=precision, constants=constants)
        answer = plan_training(setup, wish)
    except InputError:
        return _blank(chip, f"does not fit on {wish.chips}")
    each = answer.tokens_per_s / wish.chips
    usd, energy = _usd(chip, each), answer.energy_joule
    joule = None if energy is None else energy / wish.tokens
    rate = as_sure_as(answer.step_s, each, "tok/s")
    return ChipLine(
        chip=chip.name,
        chips=wish.chips,
        floor_s=None,
        user_tokens_per_s=None,
        tokens_per_s_per_chip=rate,
        usd_per_mtoken=usd,
        joule_per_token=joule,
        mfu_frac=answer.mfu_frac.value,
        usd_per_mtoken_range=as_sure_as(answer.step_s, usd, "$/Mtok"),
        joule_per_token_range=as_sure_as(answer.energy_range or answer.step_s, joule, "J/tok"),
        mfu_range=answer.mfu_frac,
        precision=precision.name,
    )


def _blank(chip: Chip, why: str) -> ChipLine:
    return ChipLine(
        chip=chip.name,
        chips=None,
        floor_s=None,
        user_tokens_per_s=None,
        tokens_per_s_per_chip=None,
        usd_per_mtoken=None,
        joule_per_token=None,
        why_not=why,
    )
