"""SY623 uneven-microbatches: some microbatches take the same worker much longer than others.

What: steps are replayed with every microbatch as long as its worker's mean. If forward and backward
of a microbatch are long together, the microbatches differ in work: mostly in sequence length. If
they are not, something disturbs the workers at random.
Threshold: evening them out must recover a third of what is lost to unevenness, and 5 % of a step.
Fix: balance microbatches by work (tokens, squared lengths for attention), or pack sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.stragglers import describe_gain, describe_replay, find_effect
from fuelline.diagnose.rule import found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding
    from fuelline.schema.diagnosis.stragglers import StragglerEffect

_TOGETHER = 0.9
"""Correlation of forward and backward from which the authors call it sequence lengths
(arXiv 2505.05713, section 5.3)."""


class UnevenMicrobatches:
    """Sync x imbalance, from a replayed pipeline."""

    code: Final = "SY623"
    name: Final = "uneven-microbatches"
    stage: Final = "sync"
    limit: Final = "imbalance"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if microbatches explain the loss."""
        hit = find_effect(facts, "uneven microbatches")
        if hit is None or facts.stragglers is None:
            return None
        effect, lost = hit
        return found(
            self,
            facts,
            lost,
            sentence=f"Uneven microbatches: {_why(effect)}; workers wait for the longest "
            f"{percent(lost)} of the time.",
            evidence=[
                describe_gain("every microbatch as long as its worker's mean", effect),
                *_correlated(effect),
                *describe_replay(facts.stragglers),
            ],
            remedies=[
                Remedy(
                    setting="balance microbatches by tokens, or pack sequences to one length",
                    why="a step ends when its longest chain of microbatches does",
                    applicability="unsafe",
                    risk="the order of samples changes",
                    at_most_speedup=1 / (1 - lost),
                )
            ],
        )


def _why(effect: StragglerEffect) -> str:
    if effect.correlation is not None and effect.correlation >= _TOGETHER:
        return "they differ in work, as sequences of different lengths do"
    return "the same work sometimes takes longer than at other times"


def _correlated(effect: StragglerEffect) -> list[Evidence]:
    if effect.correlation is None:
        return []
    return [
        Evidence(
            what="a microbatch whose forward is long also has a long backward: correlation "
            f"{effect.correlation:.2f}"
        )
    ]
