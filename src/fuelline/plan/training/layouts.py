"""Ways to lay out a training run over chips: all that fit are timed, the quickest is kept.

A layout runs whole micro-batches near the batch that was asked for; where none fits, the smallest
change that would is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.plan.training.memory import count_memory
from fuelline.plan.training.step import Schedule, Training
from fuelline.plan.training.timing import time_training
from fuelline.schema.errors import DoesNotFitError, InputError
from fuelline.schema.plan.estimates import Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fuelline.plan.physics.setup import Setup
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.models import Model

NEAR_FRAC = 0.1
"""A batch made of whole micro-batches may differ from the one asked for by this much."""
_MOST_POWER = 18
"""Of two: more chips than anybody has."""


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
    raise DoesNotFitError(
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
