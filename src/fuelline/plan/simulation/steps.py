"""A deployment's step times for a simulation: rounded and remembered, with its memory's room.

A simulation asks for ten thousand steps; nearly all look like one that was asked before. Counts
above a few
tens are rounded by two per cent either way, which averages out, so that a few hundred answers
serve.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from fuelline.plan.physics.deployment import CHUNK_TOKENS
from fuelline.plan.simulation.replica import Room
from fuelline.schema.plan.estimates import Slice

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.simulation.replica import StepTime

GRAIN = 1.04
"""Ratio of neighbouring rounded values."""
EXACT_UP_TO = 25
"""Below, whole numbers lie further apart than the grain."""


_PER_GRAIN = 1 / math.log(GRAIN)
_LARGE = 1 << 20
"""Added to the number of a place in the row, which is no value itself."""


def _place(value: float) -> int:
    """Where a value is rounded to: whole numbers, then places of the row."""
    if value <= EXACT_UP_TO:
        return round(value)
    return _LARGE + round(math.log(value) * _PER_GRAIN)


def _value_of(place: int) -> float:
    return float(place) if place < _LARGE else float(GRAIN ** (place - _LARGE))


@lru_cache(maxsize=8)
def remember_steps(replica: Deployment) -> StepTime:
    """Seconds of a step; a pipeline's stages hold different batches, so all layers count."""
    known: dict[tuple[int, ...], float] = {}

    def step(slices: list[Slice]) -> float:
        key: tuple[int, ...] = ()
        for each in slices if len(slices) == 1 else _joined(slices):
            key += (_place(each.count), _place(each.new), _place(each.past))
        seconds = known.get(key)
        if seconds is None:
            seconds = known[key] = replica.step(_slices_at(key)).seconds
        return seconds

    return step


def _slices_at(key: tuple[int, ...]) -> list[Slice]:
    values = [_value_of(place) for place in key]
    return [Slice(*values[at : at + 3]) for at in range(0, len(values), 3)]


def _joined(slices: list[Slice]) -> list[Slice]:
    """All prompts of a step, each as long as their mean."""
    prompts = [each for each in slices if each.new > 1]
    if len(prompts) < 2:
        return slices
    count = len(prompts)
    mean = Slice(
        count,
        sum(each.new for each in prompts) / count,
        sum(each.past for each in prompts) / count,
    )
    return [mean, *(each for each in slices if each.new <= 1)]


def find_lanes(replica: Deployment, context: float) -> int:
    """Batches that an instance works on at once, by stages and attention replicas.

    Stages that outnumber the sequences that fit stay empty.
    """
    return min(replica.spread.pp, max(replica.most(context), 1)) * replica.spread.dp


def find_room(replica: Deployment, context: float, chunk_tokens: int = CHUNK_TOKENS) -> Room:
    """Of one lane: stages share the cache of their instance."""
    stages = find_lanes(replica, context) // replica.spread.dp
    return Room(
        cache_tokens=replica.room(context) * context / stages,
        most_sequences=max(replica.engine.most_sequences, 1),
        chunk_tokens=chunk_tokens,
    )
