"""What the rules about replayed pipelines share: does a cause explain the loss, and evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.diagnose.rule import LISTED_SHARE
from fuelline.schema.diagnosis.findings import Evidence
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.stragglers import StragglerCause, StragglerEffect, StragglerFacts

_EXPLAINS = 1 / 3
"""Of the time lost to unevenness: a cause that recovers at least a third of it, and more than any
other, is named first. Four are tried, and what they recover adds up only roughly."""


def find_effect(facts: Facts, cause: StragglerCause) -> tuple[StragglerEffect, float] | None:
    """The effect and the share of the time that it costs, if it is the one that explains most."""
    found = facts.stragglers
    if found is None or not found.effects or found.effects[0].cause != cause:
        return None
    effect = found.effects[0]
    lost = effect.recovered_seconds / found.step_seconds
    return (effect, lost) if effect.share >= _EXPLAINS and lost >= LISTED_SHARE else None


def describe_gain(what: str, effect: StragglerEffect) -> Evidence:
    """What evening out the cause would recover."""
    recovered = percent(min(1.0, effect.share))
    return Evidence(what=f"with {what}, {recovered} of the loss would be gone")


def describe_replay(found: StragglerFacts) -> list[Evidence]:
    """How the loss was found, and what else was tried."""
    others = [
        Evidence(what=f"evening out {_WORDS[effect.cause]} would recover {percent(effect.share)}")
        for effect in found.effects[1:]
        if effect.share >= LISTED_SHARE
    ]
    return [
        Evidence(
            what=f"a step takes {duration(found.step_seconds)}; it would take "
            f"{duration(found.ideal_seconds)} if every operation took the mean of its kind "
            f"({found.slowdown:.2f}x)"
        ),
        Evidence(
            what=f"{found.workers} workers ({found.stages} stages x {found.replicas} replicas), "
            f"{found.steps} steps replayed"
        ),
        *others,
    ]


_WORDS: dict[StragglerCause, str] = {
    "slow worker": "the slowest worker",
    "uneven stages": "the stages",
    "uneven microbatches": "the microbatches",
    "slow exchange": "the exchanges",
}
