"""SY622 uneven-stages: one stage of a pipeline takes longer than the others in every replica.

What: steps are replayed with every stage as long as the mean of the stages. A pipeline is as fast
as its longest stage; the last one often also has the loss and a large output layer.
Threshold: evening it out must recover a third of what is lost to unevenness, and 5 % of a step.
Fix: move layers from the long stage to the others, or split its odd layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.stragglers import describe_gain, describe_replay, find_effect
from fuelline.diagnose.rule import found
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class UnevenStages:
    """Sync x imbalance, from a replayed pipeline."""

    code: Final = "SY622"
    name: Final = "uneven-stages"
    stage: Final = "sync"
    limit: Final = "imbalance"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if the stages explain the loss."""
        hit = find_effect(facts, "uneven stages")
        if hit is None or facts.stragglers is None or hit[0].stage is None:
            return None
        effect, lost = hit
        last = " (the last)" if effect.stage == facts.stragglers.stages - 1 else ""
        ratio = f"{effect.ratio:.1f}x as long as" if effect.ratio else "longer than"
        return found(
            self,
            facts,
            lost,
            sentence=f"Pipeline-stage imbalance: stage {effect.stage}{last} takes {ratio} the "
            f"others in every replica; that costs {percent(lost)} of the time.",
            evidence=[
                describe_gain("all stages as long as their mean", effect),
                *describe_replay(facts.stragglers),
            ],
            remedies=[
                Remedy(
                    setting=f"move layers from stage {effect.stage} to the others",
                    why="a pipeline is as fast as its longest stage",
                    applicability="unsafe",
                    risk="memory of the other stages; checkpoints may be laid out by stage",
                    at_most_speedup=1 / (1 - lost),
                )
            ],
        )
