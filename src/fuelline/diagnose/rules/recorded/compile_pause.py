"""PA507 compile-pause: the training compiles again and again.

What: tracing and compiling on the training thread after the first step, as JAX tells of it.
Why: a compiled function is made for the shapes of its arguments; each new shape is compiled anew.
Fix: batches of one shape, or of a few.
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


class CompilePause:
    """Pause x code, in compiling."""

    code: Final = "PA507"
    name: Final = "compile-pause"
    stage: Final = "pause"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires on the time spent compiling after the first step."""
        share = facts.share_of("compile")
        if share < LISTED_SHARE:
            return None
        return found(
            self,
            facts,
            share,
            sentence=f"Training stops for {percent(share)} of the time while functions are "
            "compiled.",
            evidence=[
                Evidence(
                    what=f"{duration(share * facts.window.seconds)} of tracing and compiling "
                    "after the first step"
                )
            ],
            remedies=[
                Remedy(
                    setting="batches of one shape: drop the last short one, and pad lengths to a "
                    "few sizes",
                    why="a compiled function is made for the shapes of its arguments, and each new "
                    "shape is compiled anew; JAX_LOG_COMPILES=1 names them",
                    applicability="unsafe",
                    risk="padded values have to be masked in the loss",
                    question=WhatIf(rarer={"compile": 1000.0}),
                )
            ],
        )
