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

from fuelline.predict.planner.physics.deployment import CHUNK_TOKENS
from fuelline.predict.planner.simulation.replica import Room
from fuelline.schema.plans import Slice

if TYPE_CHECKING:
    from fuelline.predict.planner.physics.deployment import Deployment
    from fuelline.predict.planner.simulation.replica import StepTime

GRAIN = 1.04
"""Ratio of neighbouring rounded values."""
EXACT_UP_TO = 25
"""Below, whole numbers lie further apart than the grain."""


def rounded(value: float) -> float:
    """To the next of a geometric row."""
    if value <= EXACT_UP_TO:
        return float(round(value))
    return float(GRAIN ** round(math.log(value, GRAIN)))


@lru_cache(maxsize=8)
def remember_steps(replica: Deployment) -> StepTime:
    """Seconds of a step; a pipeline's stages hold different batches, so all layers count."""
    known: dict[tuple[tuple[float, float, float], ...], float] = {}

    def step(slices: list[Slice]) -> float:
        key = tuple(
            (rounded(each.count), rounded(each.new), rounded(each.past)) for each in _joined(slices)
        )
        if key not in known:
            known[key] = replica.step([Slice(*each) for each in key]).seconds
        return known[key]

    return step


def _joined(slices: list[Slice]) -> list[Slice]:
    """All prompts of a step as so many of their mean."""
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
