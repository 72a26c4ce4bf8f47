"""PA502 validation-pause: evaluation takes a large part of the training time.

What: time spent on batches taken with gradients disabled, between training steps.
Threshold: as for every pause; validation is useful work, so this only says that there is a lot of
it.
Fix: validate less often or on fewer batches, with a larger batch (no gradients take memory), or on
another machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class ValidationPause:
    """Pause x code, in validation."""

    code: Final = "PA502"
    name: Final = "validation-pause"
    stage: Final = "pause"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires on the time spent in validation loops."""
        share = facts.share_of("validation")
        if share < LISTED_SHARE:
            return None
        seconds = share * facts.window.seconds
        return found(
            self,
            facts,
            share,
            sentence=f"Training pauses for validation {percent(share)} of the time.",
            evidence=[Evidence(what=f"{duration(seconds)} in loops over a validation loader")],
            remedies=[
                Remedy(
                    setting="validate less often, say every fourth time, or on a fixed quarter of "
                    "the set; use larger batches, since no gradients take memory",
                    why="training does not advance meanwhile",
                    applicability="display",
                    cost="metrics come later, or from fewer samples",
                    question=WhatIf(rarer={"validation": 4.0}),
                )
            ],
        )
